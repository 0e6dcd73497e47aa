"""What a job writes out op by op, though a library has one op for it."""
