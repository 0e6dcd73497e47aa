"""The work of a step: FLOPs and bytes of each op, what each kernel cannot beat, what fusing saves."""
