"""How much of the host's memory this process holds, and how much more it could get."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from findwall.model.machine import Holding

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
ROOT = Path("/")
LIMITED = (("RLIMIT_AS", "VmSize:"), ("RLIMIT_DATA", "VmData:"))  # and what is taken of each


def resident(root: Path = ROOT) -> Holding | None:
    """What is this process's own in the host's memory: pages of files that it maps can be read again."""
    with suppress(OSError, ValueError, IndexError):
        words = (root / "proc/self/statm").read_text(encoding="ascii").split()
        own = (int(words[1]) - int(words[2])) * PAGE_BYTES
        return Holding(own, own, own)
    return None


def host_limit(root: Path = ROOT) -> int | None:
    """What this process could hold in the end: what it has and what it can still get."""
    held, left = resident(root), available_memory(root)
    return None if held is None or left is None else held.allocated + left


def available_memory(root: Path = ROOT) -> int | None:
    """What this process can still get: of the machine, of its container, of its own limits."""
    known = [one for one in (unlimited_memory(root), own_limits(root)[1]) if one is not None]
    return min(known, default=None)


def unlimited_memory(root: Path = ROOT) -> int | None:
    """What the machine and its container leave."""
    machine = _told(root / "proc/meminfo", "MemAvailable:")
    if machine is None and hasattr(os, "sysconf"):  # no Linux
        machine = PAGE_BYTES * os.sysconf("SC_PHYS_PAGES")
    return min((one for one in (machine, *_of_cgroups(root)) if one is not None), default=None)


def own_limits(root: Path = ROOT) -> tuple[int | None, int | None]:
    """The limit of this process that leaves least, and what it leaves; None: it has none."""
    with suppress(ImportError):
        import resource

        told = []
        for name, taken in LIMITED:
            limit, held = (
                resource.getrlimit(getattr(resource, name))[0],
                _told(root / "proc/self/status", taken),
            )
            if limit != resource.RLIM_INFINITY and held is not None:
                told.append((limit, max(limit - held, 0)))
        return min(told, key=lambda one: one[1], default=(None, None))
    return None, None


def _told(file: Path, name: str) -> int | None:
    """Bytes, of what the system tells in kB."""
    with suppress(OSError, ValueError, IndexError):
        for line in file.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return None


def _of_cgroups(root: Path) -> list[int]:
    """What the container leaves, at every level that sets a limit."""
    found = []
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers == "":
                names, top = ("memory.max", "memory.current", "inactive_file"), root / "sys/fs/cgroup"
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                top = root / "sys/fs/cgroup/memory"
            else:
                continue
            # Inside a container the place is often told as the host names it, and lies at the top.
            folder = top / place.strip("/")
            for level in dict.fromkeys((folder, *folder.parents, top)):
                if level == top or top in level.parents:
                    found += _left(level, *names)
    return found


def _left(level: Path, limit: str, usage: str, cache: str) -> list[int]:
    with suppress(OSError, ValueError):
        most = int((level / limit).read_text(encoding="ascii"))  # "max" is no number: no limit
        used = int((level / usage).read_text(encoding="ascii"))
        reclaimable = 0
        with suppress(OSError, ValueError):
            for line in (level / "memory.stat").read_text(encoding="ascii").splitlines():
                if line.startswith(f"{cache} "):
                    reclaimable = int(line.split()[1])
        return [max(most - max(used - reclaimable, 0), 0)]
    return []
