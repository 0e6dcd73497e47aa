"""Long counts of what `make test` tries a little of: kills, odd jobs, tampered folders, mutated traces.

`python -m soak` (from `tests/`, or `make soak`) runs them; the tests import the same cases from here.
"""
