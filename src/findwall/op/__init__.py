"""The wall of an op and shape before anyone runs it: on paper, and run here."""
