"""Fixes that change the number formats a job computes in."""
