"""What a trace is reduced to where it lies, so that many can be told together."""
