"""FLOPs and bytes of an op from its recorded inputs: one file a family of ops."""
