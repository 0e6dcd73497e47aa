"""Fixes that were made in a job's process, and what proves that they took effect."""

from __future__ import annotations

import msgspec

APPLIED_FILE = "applied.json"
APPLIED_SCHEMA = "findwall-applied/1"


class AppliedFix(msgspec.Struct, frozen=True):
    """One of them."""

    seen: str = ""  # what shows that it took effect; empty: nothing did
    trouble: str = ""  # why it could not be made

    @property
    def took_effect(self) -> bool:
        return bool(self.seen) and not self.trouble


class Applied(msgspec.Struct, frozen=True):
    """`rank<k>/applied.json`."""

    fixes: dict[str, AppliedFix] = {}
    schema: str = APPLIED_SCHEMA
