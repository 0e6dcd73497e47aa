"""Fixes of what the host does beside launching: waits, loops, threads, memory."""
