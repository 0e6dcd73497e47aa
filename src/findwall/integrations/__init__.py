"""Callbacks for those who want them; unmodified trainers need none."""
