"""What the members around the events say about the machine, the rank and the recording."""

from __future__ import annotations

from typing import Any

from findwall.model.events import DeviceProperties, Header

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
