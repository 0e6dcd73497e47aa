"""Causes of the bandwidth wall: the step waits for memory."""
