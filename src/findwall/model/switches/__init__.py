"""Options of a job's own program, and those of them that do what a fix of ours does."""
