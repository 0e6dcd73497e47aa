"""Causes of the compute wall: the step waits for arithmetic."""
