"""Ops of a step, run on this device as fixes would run them."""
