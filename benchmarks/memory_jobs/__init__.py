"""Small jobs of unlike kind, each trained as it is or with one change, and its memory recorded."""
