"""The step as what flows between its ops: who made what each of them reads."""
