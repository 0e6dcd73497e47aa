"""Small traces with `[memory]` events, drawn by hand: what runs on a thread, what is made and freed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from findwall.model.events import Timeline
from findwall.readers.paths import open_run

MIB = 1 << 20
ENGINE = "autograd::engine::evaluate_function: AddmmBackward0"


class Trace:
    """One thread; every row and every event takes a microsecond."""

    def __init__(self, device: int = -1, before: int = 0, block: int = 512, numbers: str = "") -> None:
        self.events: list[dict[str, Any]] = []
        self._args = {"args": {"Input Dims": [[8, 8]], "Input type": [numbers]}} if numbers else {}
        self.held: dict[str, tuple[int, int]] = {}
        self._device, self._block = device, block
        self._now, self._next, self.total, self.peak = 1000, 1 << 30, before, before

    @contextmanager
    def row(self, name: str, category: str = "cpu_op", thread: int = 7) -> Iterator[None]:
        start = self._tick()
        yield
        row = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": self._tick() - start}
        self._note(row | (self._args if category == "cpu_op" else {}), thread)

    def make(self, name: str, size: int, thread: int = 7) -> None:
        size = -(-size // self._block) * self._block
        self.held[name] = self._next, size
        self._next += size
        self._memory(self.held[name][0], size, thread)

    def free(self, name: str, thread: int = 7) -> None:
        address, size = self.held.pop(name)
        self._memory(address, -size, thread)

    def was_there(self, name: str, size: int) -> None:
        """It is part of what was there before, and will be freed."""
        self.held[name] = self._next, size
        self._next += size

    def _memory(self, address: int, size: int, thread: int) -> None:
        self.total += size
        self.peak = max(self.peak, self.total)
        args = {
            "Total Allocated": self.total,
            "Total Reserved": 0 if self._device < 0 else 2 * self.total,
            "Bytes": size,
            "Addr": address,
            "Device Id": self._device,
            "Device Type": 0 if self._device < 0 else 1,
        }
        self._note(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "ts": self._tick(),
                "args": args,
            },
            thread,
        )

    def _note(self, event: dict[str, Any], thread: int) -> None:
        self.events.append({**event, "pid": 3, "tid": thread})

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path

    def timeline(self, folder: Path) -> Timeline:
        found = open_run([self.write(folder / "trace.json")]).first.timeline
        assert found is not None
        return found


WEIGHTS = (4 * MIB, 2 * MIB, 1 * MIB)
HIDDEN, PASSING = 3 * MIB, 2 * MIB


def train(
    trace: Trace,
    steps: int = 2,
    first_state: bool = False,
    backward_on: int = 7,
    stacks: bool = False,
    casts: bool = False,
) -> None:
    """Linear layers: forward, backward on this thread, an optimizer's step; gradients set to None."""
    for step in range(steps):
        with (
            trace.row("train.py(3): main", "python_function")
            if stacks
            else trace.row("ProfilerStep#1", "user_annotation")
        ):
            for layer in range(len(WEIGHTS)):
                _forward(trace, layer, stacks, casts)
            for layer in reversed(range(len(WEIGHTS))):
                with trace.row(ENGINE, thread=backward_on):
                    with trace.row("aten::mm", thread=backward_on):
                        trace.make(f"grad{layer}", WEIGHTS[layer], backward_on)
                        trace.make("upstream", PASSING, backward_on)
                    for name in (f"hidden{layer}", f"inner{layer}", f"cast{layer}"):
                        if name in trace.held:
                            trace.free(name, backward_on)
                    trace.free("upstream", backward_on)
            with trace.row("Optimizer.step#AdamW.step", "user_annotation"):
                for layer, size in enumerate(WEIGHTS):
                    for moment in "mv" if first_state and step == 0 else "":
                        with trace.row("aten::zeros_like"):
                            trace.make(f"{moment}{layer}", size)
                    with trace.row("aten::sqrt"):
                        trace.make("root", size)
                    trace.free("root")
            for layer in range(len(WEIGHTS)):
                trace.free(f"grad{layer}")


def _forward(trace: Trace, layer: int, stacks: bool, casts: bool) -> None:
    with (
        trace.row(f"nn.Module: Block_{layer}", "python_function")
        if stacks
        else trace.row("block", "user_annotation")
    ):
        if casts:
            with trace.row("aten::to"), trace.row("aten::_to_copy"):
                trace.make(f"cast{layer}", WEIGHTS[layer] // 2)
        if stacks:
            with trace.row("aten::gelu"):
                trace.make(f"inner{layer}", HIDDEN)
        with trace.row("aten::linear"), trace.row("aten::addmm"):
            trace.make(f"hidden{layer}", HIDDEN)
        with trace.row("aten::relu"):
            trace.make("passing", PASSING)
    trace.free("passing")
