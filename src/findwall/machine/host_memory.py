"""How much of the host's memory this process holds, and how much more it could get."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from findwall.machine.environment_host import Host, groups_of
from findwall.model.machine import Holding

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident(root: Path = Path("/")) -> Holding | None:
    """What is this process's own in the host's memory: pages of files that it maps can be read again."""
    with suppress(OSError, ValueError, IndexError):
        words = (root / "proc/self/statm").read_text(encoding="ascii").split()
        own = (int(words[1]) - int(words[2])) * PAGE_BYTES
        return Holding(own, own, own)
    return None


def host_limit(host: Host | None = None) -> int | None:
    """What this process could hold in the end: what it has and what the machine and its container leave."""
    host = host or Host()
    held = resident(host.root)
    left = [found for found in (_available(host), *_left_by_groups(host)) if found is not None]
    return None if held is None or not left else held.allocated + min(left)


def _available(host: Host) -> int | None:
    for line in (host.read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left_by_groups(host: Host) -> list[int]:
    found = []
    for group in groups_of(host, ("memory",)):
        words = [host.read(f"/sys/fs/cgroup/{group}/memory.{name}") or "" for name in ("max", "current")]
        if all(word.isdigit() for word in words):
            found.append(max(int(words[0]) - int(words[1]), 0))
    return found
