"""Training scripts whose batch size `sweeps.py` varies."""
