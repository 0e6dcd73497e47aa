"""A person's job, started again: its command line, a look at it, and trials of it."""
