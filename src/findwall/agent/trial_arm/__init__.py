"""A process of a trial or a sweep, from the inside: what it is given, and what two runs are compared by."""
