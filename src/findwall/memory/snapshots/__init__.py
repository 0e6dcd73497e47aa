"""Snapshots of torch's allocator, decoded without an unpickler, within so much memory and no more."""
