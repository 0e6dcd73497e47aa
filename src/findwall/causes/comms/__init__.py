"""Causes of the comms wall: the device waits for other devices."""
