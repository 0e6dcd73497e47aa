"""What an op must cost: FLOPs and bytes from its recorded arguments."""
