"""Fixes that make batches sooner, elsewhere or cheaper, and bring them to the device."""
