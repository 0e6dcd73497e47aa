"""Fixes that ask for less work, more of it a step, or a faster device."""
