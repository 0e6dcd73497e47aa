"""What the job's memory holds: totals over its steps, what lies where, a recording, requests that fail."""
