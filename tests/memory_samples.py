"""Small snapshots of torch's allocator, made by hand: a job that takes and gives back memory."""

from __future__ import annotations

import copy
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from findwall.examine import look_into
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.memory.snapshots.snapshot_shape import history
from findwall.model.diagnosis import Diagnosis
from findwall.model.memory_history import SNAPSHOT, MemoryHistory, SnapshotRun

MIB = 1 << 20
Frame = dict[str, Any]
Stack = tuple[str, ...]

MAIN = "train.py:3:<module>"
FORWARD: Stack = ("model.py:10:forward", MAIN)
LOSS: Stack = ("train.py:20:main", MAIN)
BATCH: Stack = ("data.py:5:next_batch", MAIN)
BACKWARD: Stack = ()  # autograd's thread
STEP: Stack = ("adamw.py:7:step", "/site-packages/torch/optim/optimizer.py:300:wrapper", MAIN)
ZERO: Stack = ("/site-packages/torch/optim/optimizer.py:900:zero_grad", MAIN)
BUILD: Stack = ("model.py:2:__init__", MAIN)
_OPS = "::"  # a frame with it is of C++


class Recorder:
    """An allocator with a segment for every block, which it keeps when the block is freed."""

    def __init__(
        self, device: int = 0, base: int = 1 << 40, rounding: int = 512, max_entries: int | None = None
    ) -> None:
        self.device, self.is_recording, self.time = device, False, 1_000_000
        self.events: list[dict[str, Any]] = []
        self.blocks: dict[int, dict[str, Any]] = {}  # by address
        self.held: dict[str, int] = {}
        self._next, self._rounding, self._max = base, rounding, max_entries
        self._frames: dict[str, Frame] = {}
        self.asked = self.peak = 0

    def alloc(self, name: str, size: int, stack: Stack = FORWARD) -> None:
        room = -(-size // self._rounding) * self._rounding
        free = [
            at for at, block in self.blocks.items() if block["state"] == "inactive" and block["size"] == room
        ]
        if free:
            address = free[0]
        else:
            address, self._next = self._next, self._next + room
            self._note("segment_alloc", address, room, stack)
        self._note("alloc", address, size, stack)
        block = {"address": address, "size": room, "requested_size": size, "state": "active_allocated"}
        self.blocks[address] = {**block, "frames": self.frames(stack)}
        self.held[name] = address
        self.asked += size
        self.peak = max(self.peak, self.asked)

    def free(self, name: str, stack: Stack = LOSS, done: bool = True) -> None:
        """`done`: no stream reads it any longer."""
        address = self.held.pop(name)
        block = self.blocks[address]
        self._note("free_requested", address, block["requested_size"], stack)
        block["state"] = "active_pending_free"
        if done:
            self._note("free_completed", address, block["requested_size"], stack)
            self.asked -= block["requested_size"]
            block |= {"state": "inactive", "frames": [], "requested_size": 0}

    def fail(self, size: int, left: int, stack: Stack = FORWARD) -> None:
        self._note("oom", left, size, stack)
        if self.is_recording:
            self.events[-1]["device_free"] = self.events[-1].pop("addr")
            self.events[-1]["frames"] = self.events[-1].pop("frames")

    def frames(self, stack: Stack) -> list[Frame]:
        return [self._frame(text) for text in stack]

    def _frame(self, text: str) -> Frame:
        if text not in self._frames:
            if _OPS in text:
                found: Frame = {"name": text, "filename": "??", "line": 0}
            else:
                file, line, name = text.split(":")
                found = {"name": name, "filename": file if "/" in file else f"/job/{file}", "line": int(line)}
            self._frames[text] = found
        return self._frames[text]

    def _note(self, action: str, address: int, size: int, stack: Stack) -> None:
        self.time += 10
        if not self.is_recording:
            return
        row = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time}
        self.events.append({**row, "frames": self.frames(stack)})
        if self._max is not None:  # the ring loses its beginning
            del self.events[: -self._max]

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        self.is_recording = True
        yield self
        self.is_recording = False

    def segments(self) -> list[dict[str, Any]]:
        return [
            {
                "device": self.device,
                "address": address,
                "total_size": block["size"],
                "allocated_size": block["size"] * (block["state"] == "active_allocated"),
                "active_size": block["size"] * (block["state"] != "inactive"),
                "requested_size": block["requested_size"] * (block["state"] != "inactive"),
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [block],
            }
            for address, block in self.blocks.items()
        ]

    def snapshot(self) -> dict[str, Any]:
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device)]
        return {
            "segments": self.segments(),
            "device_traces": [*traces, self.events],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
            "external_annotations": [],
        }


LAYERS = 4
WEIGHT, HIDDEN, LOGITS, TOKENS = 4 * MIB, 3 * MIB, 5 * MIB, 1 * MIB
PASSING = 2 * MIB


def build(job: Recorder, state: bool = True) -> None:
    """A model of four weights, with AdamW's two moments of each where it has made a step before."""
    for layer in range(LAYERS):
        job.alloc(f"weight{layer}", WEIGHT + layer * 4096, BUILD)
        for moment in ("m", "v") if state else ():
            job.alloc(f"{moment}{layer}", WEIGHT + layer * 4096, STEP)


def train_step(job: Recorder, new_state: bool = False, leak: str = "", layers: int = LAYERS) -> None:
    """Forward, backward, the optimizer's step; gradients and logits are there until the next one."""
    for layer in range(layers):
        if f"grad{layer}" in job.held:
            job.free(f"grad{layer}", ZERO)
    if "tokens" in job.held:
        job.alloc("tokens'", TOKENS, BATCH)
        job.free("tokens", BATCH)
        job.held["tokens"] = job.held.pop("tokens'")
    else:
        job.alloc("tokens", TOKENS, BATCH)
    for layer in range(layers):
        job.alloc(f"hidden{layer}", HIDDEN, FORWARD)
        job.alloc("passing", PASSING, FORWARD)
        job.free("passing", FORWARD)
        job.alloc(f"normed{layer}", HIDDEN, ("model.py:12:forward", MAIN))
    if "logits" in job.held:
        job.alloc("logits'", LOGITS, LOSS)
        job.free("logits", LOSS)
        job.held["logits"] = job.held.pop("logits'")
    else:
        job.alloc("logits", LOGITS, LOSS)
    if leak:
        job.alloc(leak, 2 * MIB, ("train.py:33:log", MAIN))
    for layer in reversed(range(layers)):
        job.alloc("passing", PASSING, BACKWARD)
        job.alloc(f"grad{layer}", WEIGHT + layer * 4096, BACKWARD)
        job.free("passing", BACKWARD)
        job.free(f"normed{layer}", BACKWARD)
        job.free(f"hidden{layer}", BACKWARD)
    for layer in range(layers):
        for moment in ("m", "v") if new_state else ():
            job.alloc(f"{moment}{layer}", WEIGHT + layer * 4096, STEP)
        job.alloc("passing", PASSING, STEP)
        job.free("passing", STEP)


def trained(steps: int = 1, before: bool = True, **options: Any) -> Recorder:
    """A job recorded for so many steps; `before`: its model was there already."""
    job = Recorder()
    if before:
        build(job)
    with job.recording():
        if not before:
            build(job, state=False)
        for step in range(steps):
            given = {key: value(step) if callable(value) else value for key, value in options.items()}
            train_step(job, **given)
    return job


def decoded(snapshot: Any) -> MemoryHistory:
    """In this process, without the child that reads a file; bytes are a pickle already."""
    data = snapshot if isinstance(snapshot, bytes) else pickle.dumps(snapshot, 4)
    return history("x.pickle", PlainPickle(data))


def document_of(snapshot: Any) -> Diagnosis:
    return look_into(SnapshotRun(SNAPSHOT, ("x.pickle",), (), memory=decoded(snapshot))).diagnosis


def write(path: Path, snapshot: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path


# -- as other versions write it ----------------------------------------------------------------------------


def torch_2_0(snapshot: dict[str, Any]) -> dict[str, Any]:
    """No times, no addresses of blocks, no requested sizes: a history in each block says what was asked."""
    old = copy.deepcopy(snapshot)
    for event in old["device_traces"][-1]:
        del event["time_us"]
    for segment in old["segments"]:
        for key in ("requested_size", "segment_pool_id", "is_expandable", "frames"):
            del segment[key]
        for block in segment["blocks"]:
            address, frames = block.pop("address"), block.pop("frames")
            asked = block.pop("requested_size")
            if block["state"] != "inactive":
                block["history"] = [{"addr": address, "real_size": asked, "frames": frames}]
    return {"segments": old["segments"], "device_traces": old["device_traces"]}


def torch_2_15(snapshot: dict[str, Any]) -> dict[str, Any]:
    """More keys than are needed, a text of its own in each event."""
    new = copy.deepcopy(snapshot)
    for at, event in enumerate(new["device_traces"][-1]):
        frames = event.pop("frames")
        event |= {"compile_context": "N/A", "user_metadata": "".join(["step ", str(at)]), "frames": frames}
    return new


def without_free_requested(snapshot: dict[str, Any]) -> dict[str, Any]:
    new = copy.deepcopy(snapshot)
    new["device_traces"] = [
        [event for event in trace if event["action"] != "free_requested"] for trace in new["device_traces"]
    ]
    return new


def stacks_of_allocations_alone(snapshot: dict[str, Any]) -> dict[str, Any]:
    new = copy.deepcopy(snapshot)
    for event in new["device_traces"][-1]:
        if event["action"] != "alloc":
            event["frames"] = []
    return new


def moved(snapshot: dict[str, Any], by: int) -> dict[str, Any]:
    """The same at other addresses."""
    new = copy.deepcopy(snapshot)
    for event in new["device_traces"][-1]:
        event["addr"] += by
    for segment in new["segments"]:
        for part in (segment, *segment["blocks"]):
            part["address"] += by
    return new


def expandable(snapshot: dict[str, Any]) -> dict[str, Any]:
    """One segment of all blocks, which grew as it was mapped."""
    new = copy.deepcopy(snapshot)
    for event in new["device_traces"][-1]:
        event["action"] = {"segment_alloc": "segment_map", "segment_free": "segment_unmap"}.get(
            event["action"], event["action"]
        )
    parts = sorted(new["segments"], key=lambda one: one["address"])
    whole = {**parts[0], "is_expandable": True, "blocks": [part["blocks"][0] for part in parts]}
    for key in ("total_size", "allocated_size", "active_size", "requested_size"):
        whole[key] = sum(part[key] for part in parts)
    return {**new, "segments": [whole]}


def as_signed(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Addresses as C++ writes them: 64 bits with a sign."""
    new = copy.deepcopy(snapshot)

    def signed(value: int) -> int:
        return value - (1 << 64) if value >= 1 << 63 else value

    for event in new["device_traces"][-1]:
        event["addr"] = signed(event["addr"])
    for segment in new["segments"]:
        for part in (segment, *segment["blocks"]):
            part["address"] = signed(part["address"])
    return new


def cpp_pickle(value: Any) -> bytes:
    """As torch's own pickler writes it (protocol 2): texts and what is shared are kept, nothing else."""
    out, memo = bytearray(b"\x80\x02"), {}
    shared = _shared(value)

    def keep(key: Any) -> None:
        place = memo[key] = len(memo)
        out.extend(b"q" + bytes([place]) if place < 256 else b"r" + struct.pack("<I", place))

    def put(one: Any) -> None:
        key = one if isinstance(one, str) else id(one)
        if key in memo:
            place = memo[key]
            out.extend(b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place))
            return
        _WRITERS[type(one)](out, one, put)
        if isinstance(one, str) or id(one) in shared:
            keep(key)

    put(value)
    return bytes(out + b".")


def _shared(value: Any) -> set[int]:
    """Dicts that come more than once."""
    seen, twice, left = set(), set(), [value]
    while left:
        one = left.pop()
        if isinstance(one, dict) and id(one) in seen:
            twice.add(id(one))
            continue
        seen.add(id(one))
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
    return twice


Put = Callable[[Any], None]


def _text(out: bytearray, one: str, _put: Put) -> None:
    out.extend(b"X" + struct.pack("<I", len(one.encode())) + one.encode())


def _whole(out: bytearray, one: int, _put: Put) -> None:
    if 0 <= one < 256:
        out.extend(b"K" + bytes([one]))
    elif 0 <= one < 65536:
        out.extend(b"M" + struct.pack("<H", one))
    elif -(1 << 31) <= one < 1 << 31:
        out.extend(b"J" + struct.pack("<i", one))
    else:
        out.extend(b"\x8a\x08" + struct.pack("<q", one))


def _list(out: bytearray, one: list[Any] | tuple[Any, ...], put: Put) -> None:
    out.extend(b"](")
    for item in one:
        put(item)
    out.extend(b"e")


def _dict(out: bytearray, one: dict[str, Any], put: Put) -> None:
    out.extend(b"}(")
    for key, item in one.items():
        put(key)
        put(item)
    out.extend(b"u")


_WRITERS: dict[type, Callable[[bytearray, Any, Put], None]] = {
    str: _text,
    int: _whole,
    list: _list,
    tuple: _list,
    dict: _dict,
    bool: lambda out, one, put: out.extend(b"\x88" if one else b"\x89"),
    type(None): lambda out, one, put: out.extend(b"N"),
}
