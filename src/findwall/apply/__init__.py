"""All that is changed in a live job, and the one registry that knows how it is undone."""
