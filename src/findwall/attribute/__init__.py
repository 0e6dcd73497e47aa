"""Moved away piece by piece."""
