"""Fixes that let a compiler or a recorded graph issue the step."""
