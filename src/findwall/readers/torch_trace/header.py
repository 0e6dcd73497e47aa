"""What the members around the events say about the machine, the rank and the recording."""

from __future__ import annotations

import itertools
from typing import Any

from findwall.model.events import DeviceProperties, Header, ProcessGroup

LARGEST_COUNT = 2**63 - 1  # what a column of 64-bit integers holds


def read_header(members: dict[str, Any]) -> Header:
    """Take what is there and of the right type; leave the rest unknown."""
    info = members.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    return Header(
        devices=_devices(members.get("deviceProperties")),
        rank=_count(info.get("rank")),
        world_size=_count(info.get("world_size")),
        backend=info["backend"] if isinstance(info.get("backend"), str) else None,
        shapes=_flag(members, "record_shapes"),
        stacks=_flag(members, "with_stack"),
        memory=_flag(members, "profile_memory"),
        base_time_ns=_count(members.get("baseTimeNanoseconds")) or 0,
        groups=_groups(info.get("pg_config"), _count(info.get("world_size"))),
    )


def _count(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
    return value if fits else None


def _flag(members: dict[str, Any], name: str) -> bool | None:
    """Written as 1 by torch, and as true inside `metadata` by some launchers."""
    for value in (members.get(name), _nested(members, "metadata", "profiler", "torch_profiler_kwargs", name)):
        if isinstance(value, (bool, int)):
            return bool(value)
    return None


def _nested(members: Any, *path: str) -> Any:
    for name in path:
        members = members.get(name) if isinstance(members, dict) else None
    return members


def _devices(entries: Any) -> tuple[DeviceProperties, ...]:
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        number, name = _count(entry.get("id")), entry.get("name")
        if number is not None and isinstance(name, str):
            memory, processors = _count(entry.get("totalGlobalMem")), _count(entry.get("numSms"))
            found.append(DeviceProperties(number, name, memory, processors))
    return tuple(found)


def _groups(entries: Any, world_size: int | None) -> tuple[ProcessGroup, ...]:
    """Those of two ranks and more. The group of all ranks lists none."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        name, size = entry.get("pg_name"), _count(entry.get("pg_size"))
        if not isinstance(name, str) or size is None or size < 2:
            continue
        described = entry.get("pg_desc")
        told = described if isinstance(described, str) else ""
        found.append(ProcessGroup(name, told, size, *_spaced(entry.get("ranks"), size, world_size)))
    return tuple(found)


def _spaced(ranks: Any, size: int, world_size: int | None) -> tuple[int, int]:
    """The lowest of these ranks and how far apart they are; 0 where that is uneven or unknown."""
    if not isinstance(ranks, list) or any(_count(rank) is None for rank in ranks):
        return -1, 0
    if not ranks:
        return (0, 1) if size == world_size else (-1, 0)
    ordered = sorted(ranks)
    steps = {right - left for left, right in itertools.pairwise(ordered)}
    is_even = len(ordered) == size and len(steps) == 1
    return ordered[0], steps.pop() if is_even else 0
