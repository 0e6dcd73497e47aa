"""Answers as text: a block or a table each, of 80 columns and more."""
