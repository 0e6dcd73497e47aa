"""Where a job's memory goes: snapshots of torch's allocator read, each byte at the peak given to one kind."""
