"""What is written and said of a run: its folder, the verdict's process, the lines on stderr."""
