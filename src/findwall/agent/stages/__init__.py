"""What the steps go through, one stretch after the other: settling, timing, tracing, lines, our own cost."""
