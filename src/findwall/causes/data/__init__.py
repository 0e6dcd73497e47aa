"""Causes of the data wall: the device waits for the next batch."""
