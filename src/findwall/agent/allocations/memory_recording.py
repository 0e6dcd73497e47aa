"""The stage behind the trace where `--memory` is given: a few steps with the allocator's history recorded.

None of them is timed. The history is one of the process: a job that records it itself keeps it, and findwall
leaves it alone. What was recorded lies in the run folder as torch's own snapshot, beside what lay where.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec

from findwall.agent.allocations.known_addresses import known_addresses
from findwall.agent.engine import Engine
from findwall.apply.registry import REGISTRY, Put, undo_all
from findwall.files import write_atomically
from findwall.machine import torch_device as machine
from findwall.model.measurement import KNOWN_MEMORY_FILE, SNAPSHOT_FILE
from findwall.units import NS_PER_S

BY = "allocator"
THE_JOBS = "the job records its allocations itself"
STEPS = 4  # growth is told by the third and fourth
FEWEST_STEPS = 2  # one of them whole
LASTS_AT_MOST_NS = 5 * NS_PER_S  # unless its first steps take longer
# Chosen by hand: an event takes about a kilobyte and ten microseconds to write.
MOST_EVENTS = 100_000
MOST_BYTES = 512 << 20  # before it is packed
WRITES_AT_MOST_NS = 10 * NS_PER_S
PACKED = 1  # the level of gzip that holds the job up least


class History:
    """The allocator's history, where it is nobody else's."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._puts: list[Put] = []
        self.is_the_jobs = False  # it began to record while this one did

    @property
    def is_on(self) -> bool:
        return bool(self._puts)

    def begin(self, most_events: int = MOST_EVENTS, with_ops: bool = False) -> None:
        """Raises RuntimeError where it cannot be recorded. `with_ops`: what torch does at each event as well,
        where this machine can say so; a step takes up to a third longer with it, and its snapshot twice the
        room."""
        asks = getattr(self._torch._C, "_cuda_isHistoryEnabled", None)
        if asks is None:
            raise RuntimeError("this torch does not say whether the job records its allocations")
        if asks():
            raise RuntimeError(THE_JOBS)
        record = self._torch.cuda.memory._record_memory_history
        known = inspect.signature(record).parameters
        self._puts.append(REGISTRY.hold(BY, "torch.cuda.memory: history", self._off))
        if "stacks" not in known:  # torch 2.0
            record(True, trace_alloc_max_entries=most_events, trace_alloc_record_context=True)
        else:
            forgets = {"clear_history": True} if "clear_history" in known else {}
            how = {"context": "all", "max_entries": most_events, **forgets}
            try:
                record("all", stacks="all" if with_ops else "python", **how)
            except RuntimeError:  # stacks of C++ are unwound on Linux and x86 alone
                record("all", stacks="python", **how)
        home = self._torch.cuda.memory
        self._puts.append(REGISTRY.wrap(BY, home, "_record_memory_history", self._gives_way))

    def _gives_way(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def record(*args: Any, **kwargs: Any) -> Any:
            """The job records it from here on."""
            with contextlib.suppress(Exception):
                self.end()
                self.is_the_jobs = True
            return original(*args, **kwargs)

        return record

    def _off(self) -> None:
        record = self._torch.cuda.memory._record_memory_history
        record(None if "stacks" in inspect.signature(record).parameters else False)

    def end(self) -> None:
        """As often as one likes."""
        undo_all(self._puts)


class RecordingMemory:
    """A few steps with it."""

    name = "snapshot"

    def __init__(self, engine: Engine, then: Callable[[Engine], None]) -> None:
        self._then, self._ended, self._began = then, 0, perf_counter_ns()
        self._record = engine.record.memory
        self._history = History(engine.torch)
        self._record.why_not = barred(engine)
        if not self._record.why_not:
            self._guard(lambda: self._history.begin(with_ops=True))

    def step(self, engine: Engine, now: int) -> None:
        self._ended += 1
        is_long = self._ended >= FEWEST_STEPS and now - self._began > LASTS_AT_MOST_NS
        if not self._record.why_not and self._ended < STEPS and not is_long:
            return
        self._keep(engine)
        if self._record.why_not and engine.rank.speaks:
            engine.note(f"what peaks in memory was not recorded: {self._record.why_not}")
        self._then(engine)

    def _keep(self, engine: Engine) -> None:
        began = perf_counter_ns()
        if self._history.is_on:
            self._guard(lambda: self._write(engine))
        elif self._history.is_the_jobs:
            self._record.why_not = THE_JOBS
        self._history.end()
        spent = perf_counter_ns() - began
        engine.record.cost["snapshot_s"] = spent / NS_PER_S
        engine.diary.held_up += spent

    def _write(self, engine: Engine) -> None:
        assert engine.folder is not None
        keep_snapshot(engine, WRITES_AT_MOST_NS)

    def _guard(self, action: Callable[[], object]) -> None:
        """Whatever fails here ends the recording, and nothing else."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - private parts of torch, and the disk
            self._record.why_not = str(error) or type(error).__name__
            with contextlib.suppress(Exception):  # the same private parts
                self._history.end()

    def close(self, engine: Engine) -> None:
        """The job has ended here, maybe because its memory did: what is there is kept."""
        self._keep(engine)


def keep_snapshot(engine: Engine, at_most_ns: int) -> None:
    """In the run folder, with what lies where; raises."""
    assert engine.folder is not None
    path = engine.folder.rank_path / SNAPSHOT_FILE
    write_snapshot(engine.torch, path, at_most_ns)
    engine.record.memory.snapshot = path.name
    engine.record.memory.known_at_snapshot = write_known(engine, "snapshot")


def barred(engine: Engine) -> str:
    """Why nothing can be recorded; empty if it can."""
    if not engine.rank.speaks:
        return "it is done on the first rank"
    if engine.folder is None:
        return "there is no run folder"
    if not machine.counts_memory(engine.torch):
        return "the job's allocator is not torch's own"
    return ""


def write_snapshot(torch: Any, path: Path, at_most_ns: int = WRITES_AT_MOST_NS) -> None:
    """Whole or not at all; raises."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"partial-{path.name}")
    try:
        with draft.open("wb") as file:
            draft.chmod(0o600)
            with gzip.GzipFile("", "wb", PACKED, file, mtime=0) as packed:
                pickle.dump(torch.cuda.memory._snapshot(), _Bounded(packed, at_most_ns), protocol=4)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class _Bounded:
    """Takes so many bytes in so much time: the job waits meanwhile."""

    def __init__(self, file: gzip.GzipFile, at_most_ns: int) -> None:
        self._file, self._left = file, MOST_BYTES
        self._until = perf_counter_ns() + at_most_ns

    def write(self, data: Any) -> int:
        self._left -= len(data)
        if self._left < 0 or perf_counter_ns() > self._until:
            raise RuntimeError("it is too much to write while the job waits")
        return self._file.write(data)


def write_known(engine: Engine, recording: str) -> str | None:
    """What lies where, beside a recording that ends now; the file's name. None, and a note, if not."""
    try:
        assert engine.folder is not None
        path = engine.folder.rank_path / KNOWN_MEMORY_FILE.format(recording)
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(known_addresses(engine.torch)), private=True)
    except Exception as error:  # noqa: BLE001 - the job's own objects may be anything; and the disk
        engine.note(f"what lies where in memory is not known: {error}")
        return None
    return path.name
