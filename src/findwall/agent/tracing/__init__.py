"""The few steps that are recorded with the profiler."""
