"""What this machine is and can do: its parts, its wiring, its ceilings, who else uses it."""
