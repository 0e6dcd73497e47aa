"""Where a step of the job ends, told by whatever the job lets us see."""
