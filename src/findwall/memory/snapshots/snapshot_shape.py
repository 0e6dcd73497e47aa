"""What a decoded snapshot holds, as columns: in whichever shape one of torch's versions wrote it.

torch 2.0 has neither times nor addresses of blocks, and asks a block's `history` for what was asked for; a
snapshot without a recording has segments alone; `memory_snapshot()` gives them as a bare list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from findwall.memory.lives import reserved
from findwall.memory.snapshots.pickled_values import RefusedError, Rows, Stack
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.model.memory_history import (
    AWAITING_FREE,
    HIGHEST_ADDRESS,
    I64,
    INACTIVE,
    MOST_BYTES,
    MOST_DEVICES,
    STATES,
    U64,
    Blocks,
    CodeFrame,
    DeviceHistory,
    Marked,
    MemoryEvents,
    MemoryHistory,
    Segments,
)

MOST_IN_ALL = 2.0**62  # bytes of all events: sums stay whole numbers
_STATE_OF = {name: number for number, name in enumerate(STATES)} | {"active_pending_free": AWAITING_FREE}
NOT_ONE = "is a pickle, but not of torch.cuda.memory._snapshot()"


def history(path: str, decoder: PlainPickle) -> MemoryHistory:
    """Decode it all; raises RefusedError."""
    document = decoder.load()
    if isinstance(document, list):
        document = {"segments": document}
    if not isinstance(document, dict) or not isinstance(document.get("segments"), list):
        raise RefusedError(NOT_ONE)
    traces = document.get("device_traces", [])
    if not isinstance(traces, list) or len(traces) > MOST_DEVICES:
        raise RefusedError(NOT_ONE)
    by_device: dict[int, list[dict[str, Any]]] = {}
    for segment in document["segments"]:
        if not isinstance(segment, dict):
            raise RefusedError(NOT_ONE)
        by_device.setdefault(_whole(segment, "device", 0, MOST_DEVICES), []).append(segment)
    numbers = sorted(by_device.keys() | {at for at, trace in enumerate(traces) if trace})
    return MemoryHistory(
        path,
        tuple(
            _device(
                number, by_device.get(number, []), traces[number] if number < len(traces) else [], decoder
            )
            for number in numbers
        ),
        [CodeFrame(*frame) for frame in decoder.frames],
        list(decoder.stacks),
        tuple(_marked(document.get("external_annotations"))),
        _settings(document.get("allocator_settings")),
    )


def _whole(of: dict[str, Any], key: str, otherwise: int | None = None, most: int = MOST_BYTES) -> int:
    value = of.get(key, otherwise)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise RefusedError(f"is damaged: {key!r} is not a size")
    return value


def _device(number: int, segments: list[dict[str, Any]], trace: Any, decoder: PlainPickle) -> DeviceHistory:
    rows = [(at, *block) for at, segment in enumerate(segments) for block in _blocks(segment)]
    columns = list(zip(*rows, strict=True)) or [()] * 6
    blocks = Blocks(
        np.array(columns[0], np.int32),
        np.array(columns[1], np.uint64),
        np.array(columns[2], np.int64),
        np.array(columns[3], np.int64),
        np.array(columns[4], np.uint8),
        np.array(columns[5], np.int32),
    )
    found = Segments(
        np.array([_address(segment) for segment in segments], np.uint64),
        np.array([_whole(segment, "total_size") for segment in segments], np.int64),
        _said(segments, "active_size", blocks, blocks.size),
        _said(segments, "requested_size", blocks, blocks.requested),
        np.array([_is_private(segment) for segment in segments], np.bool_),
    )
    whole = DeviceHistory(number, _events(trace, decoder), found, blocks)
    _check(whole)
    return whole


def _check(history: DeviceHistory) -> None:
    """No byte is held twice, what a segment says of itself is what its blocks hold, and what was taken from
    the driver can be."""
    segments, blocks = history.segments, history.blocks
    if _overlap(segments.address, segments.total) or _overlap(blocks.address, blocks.size):
        raise RefusedError("is damaged: two of its segments or blocks hold the same bytes")
    if (segments.active != _held_by(blocks, blocks.size, len(segments.total))).any():
        raise RefusedError("is damaged: a segment holds something else than its blocks do")
    if segments.total.sum(dtype=np.float64) > MOST_BYTES:
        raise RefusedError("is damaged: no device has as much as its segments hold")
    taken = reserved(history)
    if not 0 <= int(taken.min()) <= int(taken.max()) <= MOST_BYTES:
        raise RefusedError("is damaged: the driver gave more than its segments hold, or took more back")


def _overlap(starts: U64, sizes: I64) -> bool:
    order = np.argsort(starts, kind="stable")
    order = order[sizes[order] > 0]
    ends = starts[order] + sizes[order].astype(np.uint64)
    return bool((ends[:-1] > starts[order][1:]).any())


def _held_by(blocks: Blocks, sizes: I64, segments: int) -> I64:
    """Bytes of the blocks that hold something, by segment."""
    held = blocks.state != INACTIVE
    found = np.zeros(segments, np.int64)
    np.add.at(found, blocks.segment[held], sizes[held])
    return found


def _said(segments: list[dict[str, Any]], key: str, blocks: Blocks, sizes: I64) -> I64:
    """What each segment says of itself; where it does not, what its blocks add up to."""
    if all(key in segment for segment in segments):
        return np.array([_whole(segment, key) for segment in segments], np.int64)
    return _held_by(blocks, sizes, len(segments))


def _address(of: dict[str, Any]) -> int:
    value = of.get("address")
    if not isinstance(value, int) or not -(1 << 63) <= value <= HIGHEST_ADDRESS:
        raise RefusedError("is damaged: 'address' is not an address")
    return value & HIGHEST_ADDRESS  # C++ writes those past 2^63 as negative numbers


def _is_private(segment: dict[str, Any]) -> bool:
    pool = segment.get("segment_pool_id")
    return isinstance(pool, list | tuple) and any(pool)


def _blocks(segment: dict[str, Any]) -> Iterator[tuple[int, int, int, int, int]]:
    """Address, size, size asked for, state and stack of each block of a segment."""
    start = _address(segment)
    place, end = start, start + _whole(segment, "total_size")
    if end > HIGHEST_ADDRESS:
        raise RefusedError("is damaged: a segment ends past all addresses")
    blocks = segment.get("blocks", [])
    if not isinstance(blocks, list):
        raise RefusedError(NOT_ONE)
    for block in blocks:
        if not isinstance(block, dict):
            raise RefusedError(NOT_ONE)
        size = _whole(block, "size")
        address = _address(block) if "address" in block else place
        if not start <= address <= address + size <= end:
            raise RefusedError("is damaged: a block lies outside its segment")
        latest = _latest(block)
        named = block.get("state")
        state = _STATE_OF.get(named) if isinstance(named, str) else None
        if state is None:
            raise RefusedError("holds a block in a state that findwall does not know")
        asked = _whole(latest, "requested_size", latest.get("real_size", size))
        if asked > size and state != INACTIVE:  # of a free one it is what it was for before it was split
            raise RefusedError("is damaged: a block is smaller than what was asked for")
        stack = latest.get("frames")
        yield address, size, asked, state, int(stack) if isinstance(stack, Stack) else -1
        place = address + size


def _latest(block: dict[str, Any]) -> dict[str, Any]:
    """Where what was asked for stands: in the block, or first in its history."""
    chain = block.get("history")
    if (
        "requested_size" in block
        or not isinstance(chain, list)
        or not chain
        or not isinstance(chain[0], dict)
    ):
        return block
    return chain[0]


def _events(trace: Any, decoder: PlainPickle) -> MemoryEvents:
    if not isinstance(trace, list) or not all(isinstance(rows, Rows) for rows in trace):
        raise RefusedError(NOT_ONE)
    every = decoder.columns
    kept = np.concatenate([np.arange(rows.start, rows.end) for rows in trace] or [np.arange(0)])
    found = MemoryEvents(
        np.frombuffer(every.action, np.uint8)[kept],
        np.frombuffer(every.address, np.uint64)[kept],
        np.frombuffer(every.size, np.int64)[kept],
        np.frombuffer(every.time, np.int64)[kept],
        np.frombuffer(every.stack, np.int32)[kept],
    )
    if len(kept) and not 0 <= int(found.size.min()) <= int(found.size.max()) <= MOST_BYTES:
        raise RefusedError("is damaged: an event has a size that cannot be")
    if float(found.size.sum(dtype=np.float64)) > MOST_IN_ALL:
        raise RefusedError("is damaged: its events have sizes that cannot be")
    return found


def _marked(annotations: Any) -> Iterator[Marked]:
    """Stretches with a beginning and an end; those that are cut off are left out."""
    begun: dict[tuple[str, int], list[int]] = {}
    for one in annotations if isinstance(annotations, list) else ():
        if not isinstance(one, dict):
            continue
        name, device, time = one.get("name"), one.get("device"), one.get("time_us")
        if not isinstance(name, str) or not isinstance(device, int) or not isinstance(time, int):
            continue
        if not (0 <= device <= MOST_DEVICES and 0 <= time < MOST_BYTES << 12):
            continue
        if one.get("stage") == "START":
            begun.setdefault((name, device), []).append(time)
        elif begun.get((name, device)):
            yield Marked(name, device, begun[name, device].pop(), time)


def _settings(settings: Any) -> str:
    given = settings.get("PYTORCH_CUDA_ALLOC_CONF") if isinstance(settings, dict) else None
    return given[:200] if isinstance(given, str) else ""
