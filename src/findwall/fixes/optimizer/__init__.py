"""Fixes of how parameters and averages of them are updated."""
