"""Fixes of what ranks send each other."""
