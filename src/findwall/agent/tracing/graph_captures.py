"""What a job launches while it captures a graph: kept, since a replay tells nothing of it.

During a capture torch's own observer of ops writes each op and its inputs to a file: nothing the capture
could see. Compiled kernels are
launched past the dispatcher; Inductor puts a range around each where a profiler is on, and for the time of
the capture it is told that one is. The job's calls are made as they are; whatever fails here ends the
keeping of captures, and nothing else.

Kept are the captures that were replayed while steps were traced. One made before findwall could see it stays
unknown.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from findwall.agent.tracing.observer import OBSERVER
from findwall.apply.registry import COUNTS, REGISTRY, Call, Put, undo_all
from findwall.model.measurement import CAPTURE_FILE

BY = "captures"
FILES_GO = "what was recorded is deleted when the process ends at the latest"

# Both chosen by hand: a server captures up to a hundred batch sizes, each some megabytes of ops.
MOST_CAPTURES = 128
MOST_BYTES = 512 << 20  # on disk, until the job ends


class _Sink(Protocol):
    @property
    def off(self) -> bool: ...


class _Relay(Protocol):
    @property
    def sink(self) -> _Sink: ...


class Captures:
    """The captures of this process, and the replays that a trace window saw."""

    def __init__(self) -> None:
        self.closed = False  # nobody will trace any more, or something failed: nothing more is recorded
        self.failure = ""
        self.replays: list[int] = []  # in the last window: which capture each was; -1 none that we have
        self._folder: Path | None = None
        self._puts: list[Put] = []
        self._process = os.getpid()  # a forked child has the same files and must leave them
        self._number: dict[int, int] = {}  # by id of the graph; -1 where its capture was not recorded
        self._files: list[Path] = []
        self._kept: dict[int, str] = {}  # by number: the file's name in the run folder
        self._bytes = 0
        self._open: tuple[int, Path, _Ranges] | None = None  # the graph in capture
        self._tracing = False

    def begin(self, torch: Any, graph: Any) -> None:
        """A capture has begun."""
        self._number[id(graph)] = -1
        if self.closed or self._open is not None or self._tracing or os.getpid() != self._process:
            return
        if OBSERVER.is_busy:  # with whole iterations
            return
        if len(self._files) >= MOST_CAPTURES or self._bytes >= MOST_BYTES:
            return
        self._guard(lambda: self._begin(torch, graph))

    def _begin(self, torch: Any, graph: Any) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="findwall-captures-"))
            atexit.register(self.discard)
            at_exit = REGISTRY.hold(BY, "atexit", lambda: atexit.unregister(self.discard), past_end=FILES_GO)
            self._puts.append(at_exit)
        path = self._folder / f"{len(self._files)}.json"
        OBSERVER.begin(torch, path)
        self._open = (id(graph), path, _Ranges(torch))
        self._open[2].begin()

    def end(self, graph: Any, failed: bool) -> None:
        """The capture has ended, or come to nothing."""
        if self._open is not None and self._open[0] == id(graph):
            self._guard(lambda: self._end(graph, failed))

    def _end(self, graph: Any, failed: bool) -> None:
        assert self._open is not None
        (_, path, ranges), self._open = self._open, None
        ranges.end()
        OBSERVER.end()
        if failed:
            path.unlink(missing_ok=True)
            return
        self._number[id(graph)] = len(self._files)
        self._files.append(path)
        self._bytes += path.stat().st_size

    def replayed(self, graph: Any) -> None:
        if self._tracing:
            self.replays.append(self._number.get(id(graph), -1))

    def window(self, is_open: bool) -> None:
        """A trace window opens or closes."""
        if is_open:
            self.replays = []
        self._tracing = is_open

    def keep(self, folder: Path) -> tuple[list[str], list[int]]:
        """What the last window replayed goes into the run folder. Its files, and which each replay was."""
        for number in sorted(set(self.replays) - set(self._kept) - {-1}):
            name = CAPTURE_FILE.format(len(self._kept))
            with contextlib.suppress(OSError):
                shutil.move(self._files[number], folder / name)
                self._kept[number] = name
        places = {number: place for place, number in enumerate(self._kept)}
        return list(self._kept.values()), [places.get(number, -1) for number in self.replays]

    def reopen(self) -> None:
        """Another window follows."""
        self.closed = bool(self.failure)

    def discard(self) -> None:
        """Let go of every file that was not kept, and record no more."""
        self.closed = True
        folder, self._folder = self._folder, None
        if folder is not None and os.getpid() == self._process:
            shutil.rmtree(folder, ignore_errors=True)
        undo_all(self._puts)

    def _guard(self, action: Callable[[], None]) -> None:
        """A capture of the job's is under way: nothing of ours may raise into it."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - private parts of torch, and the disk
            self.closed = True
            self.failure = f"captures are not kept: {type(error).__name__}: {error}"
            opened, self._open = self._open, None
            if opened is not None:
                with contextlib.suppress(Exception):  # the same private parts
                    opened[2].end()
                with contextlib.suppress(Exception):  # they, and stderr
                    OBSERVER.end()


CAPTURES = Captures()


class _Ranges:
    """Has Inductor put a range around each compiled kernel, with what the kernel was given."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profiler = torch.autograd.profiler
        self._was_on = bool(getattr(self._profiler, "_is_profiler_enabled", True))
        self._puts: list[Put] = []

    def begin(self) -> None:
        """Not where a profiler is on: the ranges are then its own."""
        if self._was_on or not hasattr(self._torch._C._profiler, "_RecordFunctionFast"):
            return
        ranges = functools.partial(_Range, self)
        self._puts = [
            REGISTRY.set(BY, self._torch._C._profiler, "_RecordFunctionFast", ranges),
            REGISTRY.set(BY, self._profiler, "_is_profiler_enabled", True),
        ]

    def end(self) -> None:
        undo_all(self._puts)

    def entered(self, name: str, arguments: Any) -> Any:
        """An open range of this name, that the observer of ops sees."""
        tensors = [one for one in arguments or () if isinstance(one, self._torch.Tensor)]
        opened = self._profiler.record_function(name, ";".join(map(_described, tensors)))
        opened.__enter__()
        return opened


def _described(tensor: Any) -> str:
    """Type, shape and strides: "bfloat16:32x4096:4096x1"."""
    shape, strides = ("x".join(map(str, values)) for values in (tensor.shape, tensor.stride()))
    return f"{str(tensor.dtype).removeprefix('torch.')}:{shape}:{strides}"


class _Range:
    """Stands in for torch's range around a compiled kernel."""

    def __init__(self, ranges: _Ranges, name: str, arguments: Any = None, *more: Any, **named: Any) -> None:
        self._ranges, self._name, self._arguments = ranges, name, arguments
        self._opened: Any = None

    def __enter__(self) -> None:
        with contextlib.suppress(Exception):  # inside the job's compiled code: no range, then
            self._opened = self._ranges.entered(self._name, self._arguments)

    def __exit__(self, *how: Any) -> None:
        with contextlib.suppress(Exception):  # as above
            if self._opened is not None:
                self._opened.__exit__(None, None, None)


def watch_captures(torch: Any, relay: _Relay) -> None:
    """Be told of every capture and every replay."""
    graph_class = torch.cuda.CUDAGraph

    def begins(original: Call) -> Call:
        @functools.wraps(original)
        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if not relay.sink.off:
                CAPTURES.begin(torch, self)
            return result

        return capture_begin

    def ends(original: Call) -> Call:
        @functools.wraps(original)
        def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
            failed = True
            try:
                result = original(self, *args, **kwargs)
                failed = False
            finally:
                CAPTURES.end(self, failed)
            return result

        return capture_end

    def replays(original: Call) -> Call:
        @functools.wraps(original)
        def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            CAPTURES.replayed(self)
            return result

        return replayed

    for name, make in (("capture_begin", begins), ("capture_end", ends), ("replay", replays)):
        REGISTRY.wrap(BY, graph_class, name, make, past_trace=COUNTS)
