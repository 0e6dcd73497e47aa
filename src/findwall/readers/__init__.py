"""From files to a Run: one file a format, recognised by content, never by name."""
