"""What Nsight Compute counts: its exports read, and what holds each kernel up."""
