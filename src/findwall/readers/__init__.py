"""From files to a Run: one file a format, recognised by content, never by name."""

from __future__ import annotations

from findwall.readers.paths import open_run
from findwall.readers.torch_trace import read_trace

__all__ = ["open_run", "read_trace"]
