"""What causes and fixes ask about a run, each answered once."""
