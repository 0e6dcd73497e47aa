"""One rank alone: its trace to a summary of a few kilobytes, on however many processes or machines."""
