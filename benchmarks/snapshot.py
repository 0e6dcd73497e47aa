"""How fast a memory snapshot is read, and what memory that takes, beside torch's own viewer.

    python benchmarks/snapshot.py [--events N] [--write]

Makes a snapshot of a million events, of a training job drawn with stacks as deep as torch records them by
default, then runs `python -m torch.cuda._memory_viz trace_plot FILE` and `findwall read FILE --json FILE` on
it, one after the other. Both run on a small snapshot first, so that both have their bytecode, as what is
installed has. Bars: four times faster in this one run; peak memory (process tree, shared pages once) at
most 4.5 times the file.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from process_tree import Measured, measure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "snapshot.json"
TIMES_FASTER, TIMES_THE_FILE = 4.0, 4.5
LAYERS, OPS, MIB = 24, 20, 1 << 20
CPP_FRAMES, PYTHON_FRAMES = 22, 12  # of a stack: what stacks="all" records in a model of modules


class Job:
    """A training job's allocator: blocks come back at the addresses they had."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.blocks: dict[int, dict[str, Any]] = {}
        self._time, self._next = 1_700_000_000_000_000, 0x7F0000000000
        self._free: dict[int, list[int]] = {}
        self._frames: dict[tuple[str, int], dict[str, Any]] = {}

    def stack(self, op: int, phase: str) -> list[dict[str, Any]]:
        """A list of its own, as torch makes one for each event; frames are shared."""
        cpp = [
            self._frame(f"at::_ops::op{op % 7}_{depth}::call(at::Tensor const&)", 0)
            for depth in range(CPP_FRAMES)
        ]
        if phase == "backward":
            return cpp
        python = [
            self._frame(f"/job/{phase}{depth}.py", 10 * op + depth) for depth in range(PYTHON_FRAMES - 1)
        ]
        return [*cpp, *python, self._frame("/job/train.py", 3)]

    def _frame(self, file: str, line: int) -> dict[str, Any]:
        key = file, line
        if key not in self._frames:
            is_python = file.endswith(".py")
            name = "<module>" if file.endswith("train.py") else "forward" if is_python else file
            self._frames[key] = {"name": name, "filename": file if is_python else "??", "line": line}
        return self._frames[key]

    def alloc(self, size: int, op: int, phase: str) -> int:
        free = self._free.setdefault(size, [])
        if free:
            address = free.pop()
        else:
            address, self._next = self._next, self._next + size
        frames = self.stack(op, phase)
        self._note("alloc", address, size, frames)
        self.blocks[address] = {"address": address, "size": size, "requested_size": size, "frames": frames}
        self.blocks[address]["state"] = "active_allocated"
        return address

    def free(self, address: int, op: int, phase: str) -> None:
        block, frames = self.blocks[address], self.stack(op, phase)
        for action in ("free_requested", "free_completed"):
            self._note(action, address, block["size"], frames)
        block |= {"state": "inactive", "frames": []}
        self._free[block["size"]].append(address)

    def _note(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        self._time += 7
        row = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self._time}
        self.events.append({**row, "compile_context": "N/A", "user_metadata": "".join([]), "frames": frames})

    def step(self) -> None:
        kept = []
        for layer in range(LAYERS):
            for op in range(OPS):
                size = (1 + (layer + op) % 5) * MIB
                kept.append((self.alloc(size, op, "forward"), op))
                if op % 3 == 0:
                    self.free(self.alloc(MIB // 2, op, "forward"), op, "forward")
        for address, op in reversed(kept):
            passing = self.alloc(2 * MIB, op, "backward")
            self.free(address, op, "backward")
            self.free(passing, op, "backward")
        for op in range(LAYERS):
            self.free(self.alloc(4 * MIB, op, "optimizer"), op, "optimizer")

    def snapshot(self) -> dict[str, Any]:
        segments = [
            {
                "device": 0,
                "address": address,
                "total_size": block["size"],
                "allocated_size": block["size"] * (block["state"] != "inactive"),
                "active_size": block["size"] * (block["state"] != "inactive"),
                "requested_size": block["size"] * (block["state"] != "inactive"),
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [block],
            }
            for address, block in self.blocks.items()
        ]
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": settings}


def make(path: Path, events: int) -> int:
    job = Job()
    while len(job.events) < events:
        job.step()
    with path.open("wb") as file:
        pickle.dump(job.snapshot(), file)
    return len(job.events)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--events", type=int, default=1_000_000)
    asked.add_argument("--write", action="store_true", help="Keep the figures in benchmarks/results.")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, page = Path(folder) / "snapshot.pickle", Path(folder) / "viewer.html"
        pid = os.fork()  # what making it takes is no part of this process
        if pid == 0:
            make(path, options.events)
            os._exit(0)
        os.waitpid(pid, 0)
        size = path.stat().st_size
        small = Path(folder) / "small.pickle"
        make(small, 1000)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        measured = {}
        for which in (small, path):
            measured = {name: measure(command) for name, command in commands(which, page).items()}
    return report(options.events, size, measured, options.write)


def commands(path: Path, page: Path) -> dict[str, list[str]]:
    return {
        "viewer": [sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", str(path), "-o", str(page)],
        "findwall": [sys.executable, "-m", "findwall", "read", str(path), "--json", os.devnull],
    }


def report(events: int, size: int, measured: dict[str, Measured], keep: bool) -> int:
    assert all(one.exit_code == 0 for one in measured.values())
    faster = measured["viewer"].seconds / measured["findwall"].seconds
    memory = measured["findwall"].peak_bytes / size
    print(f"{events:,} events, {size / 1e6:.0f} MB")
    for name, one in measured.items():
        print(
            f"{name:<10}{one.seconds:8.1f} s{one.cpu_seconds:8.1f} s of cores{one.peak_bytes / 1e6:10.0f} MB"
        )
    print(f"{faster:.1f} times faster (bar {TIMES_FASTER})")
    print(f"memory {memory:.1f} times the file (bar {TIMES_THE_FILE})")
    if keep:
        found = {
            "events": events,
            "file_bytes": size,
            "seconds": {name: round(one.seconds, 2) for name, one in measured.items()},
            "cpu_seconds": {name: round(one.cpu_seconds, 2) for name, one in measured.items()},
            "peak_bytes": {name: one.peak_bytes for name, one in measured.items()},
            "times_faster": round(faster, 2),
            "times_the_file": round(memory, 2),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        }
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if faster >= TIMES_FASTER and memory <= TIMES_THE_FILE else 1


if __name__ == "__main__":
    sys.exit(main())
