"""Causes of the overhead wall: the device waits for the host."""
