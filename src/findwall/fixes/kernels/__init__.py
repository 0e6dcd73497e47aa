"""Fixes that make other kernels do the same work."""
