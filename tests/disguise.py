"""The same trace told differently: what a file may change without changing what happened."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

Trace = dict[str, Any]
Event = dict[str, Any]
Disguise = Callable[[Trace, random.Random], None]

_DECODER = msgspec.json.Decoder(float_hook=Decimal)  # timestamps keep every digit they were written with
_ENCODER = msgspec.json.Encoder(decimal_format="number")

# Arguments that only tell things apart. A row means the same under any other number.
_NUMBERED = {
    "correlation": "correlation",
    "wait_on_cuda_event_record_corr_id": "correlation",
    "External id": "external",
    "external id": "external",
    "Record function id": "record",
    "Ev Idx": "index",
    "Python id": "python",
    "Python parent id": "python",
    "Python module id": "module",
    "Sequence number": "sequence",
    "Fwd thread id": "forward",
    "context": "context",
    "stream": "stream",
    "wait_on_stream": "stream",
    "wait_on_cuda_event_id": "event",
    "graph node id": "node",
    "graph id": "graph",
}
_HASH = re.compile(r"_GLOBAL__N__[0-9a-f]{8}")
_LAMBDA = re.compile(r"#(\d+)\}")
_UNROLL = re.compile(r"((?:vectorized|unrolled)_elementwise_kernel<)(\d+)")


def load(path: Path) -> Trace:
    """The trace as it stands in its file."""
    data = path.read_bytes()
    trace: Trace = _DECODER.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return trace


def save(trace: Trace, path: Path) -> Path:
    """The trace without one blank, compressed only where the name says so."""
    data = _ENCODER.encode(trace)
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def shuffle(trace: Trace, chance: random.Random) -> None:
    chance.shuffle(trace["traceEvents"])


def drop_flows(trace: Trace, _: random.Random) -> None:
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("ph") not in ("s", "t", "f")]


def shift(nanoseconds: int) -> Disguise:
    """All that carries a time, later (or earlier) by so much."""

    def shifted(trace: Trace, _: random.Random) -> None:
        by = Decimal(nanoseconds) / 1000
        for event in trace["traceEvents"]:
            if event.get("ph") != "M" and isinstance(event.get("ts"), int | Decimal):
                event["ts"] += by

    return shifted


def renumber(trace: Trace, chance: random.Random) -> None:
    """Every id, pid, tid and stream under a new number, in no order."""
    pools: dict[str, dict[int, int]] = {}
    taken: set[int] = set()

    def new(pool: str, number: Any) -> Any:
        if (
            not isinstance(number, int)
            or number < 0
            or (number == 0 and pool not in ("stream", "pid", "tid"))
        ):
            return number
        known = pools.setdefault(pool, {})
        if number not in known:
            # A new block of numbers each time, taken from no particular place: no two are the same.
            block = chance.randrange(10, 1_000_000)
            while block in taken:
                block = chance.randrange(10, 1_000_000)
            taken.add(block)
            known[number] = block * 1_000 + chance.randrange(1_000)
        return known[number]

    for event in trace["traceEvents"]:
        on_device = "stream" in (event.get("args") or {}) and event.get("tid") == event["args"]["stream"]
        event["pid"] = new("pid", event.get("pid"))
        event["tid"] = new("stream" if on_device else "tid", event.get("tid"))
        if "id" in event and event.get("ph") in ("s", "t", "f"):
            event["id"] = new("flow", event["id"])
        arguments = event.get("args") or {}
        for name in arguments.keys() & _NUMBERED.keys():
            arguments[name] = new(_NUMBERED[name], arguments[name])


def rename_noise(trace: Trace, _: random.Random) -> None:
    """Parts of kernels' names that a compiler hands out: lambda numbers, hashes, unroll counts.

    How far a loop is unrolled means nothing only where ops tell sizes: else grid times unroll is the size.
    """
    kernels = [one for one in trace["traceEvents"] if str(one.get("cat", "")).lower() == "kernel"]
    replayed = any("GraphLaunch" in str(one.get("name")) for one in trace["traceEvents"])
    for kernel in kernels:
        name = _HASH.sub("_GLOBAL__N__0badcafe", kernel["name"])
        kernel["name"] = _LAMBDA.sub(lambda found: f"#{int(found[1]) + 3}}}", name)
        if trace.get("record_shapes") and not replayed:
            kernel["name"] = _UNROLL.sub(lambda found: f"{found[1]}{2 * int(found[2])}", kernel["name"])


def without_noise(names: Iterable[str]) -> list[str]:
    """Names with all such parts blanked, so that a disguised file can be compared with its original."""
    return [_UNROLL.sub(r"\1", _LAMBDA.sub("#}", _HASH.sub("", name))) for name in names]
