"""One thing about the environment that a person should know before their job is blamed."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    id: str
    level: str  # "info" or "warning"
    sentence: str
    fix: str = ""
