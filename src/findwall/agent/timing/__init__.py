"""What is timed of steps, and of the machine meanwhile, without the profiler."""
