"""Many traces to many summaries, on several processes: only summaries come back, so that memory stays flat.

A trace is read and reduced by a process that ends with it in memory, never here. What cannot be read is one
note, not the end of it; so is a file that ends the process that reads it.
"""

from __future__ import annotations

import os
import queue
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from findwall.errors import InputError
from findwall.model.measurement import MEASUREMENT_FILE
from findwall.model.summaries.rank_summary import RankSummary, decode, encode

Progress = Callable[[int, int], None]
_LENGTH = struct.Struct("<Q")


class Reduced(msgspec.Struct, frozen=True):
    """One path's summary, or why there is none; neither where it is no trace."""

    path: str
    raw: bytes = b""
    refused: str = ""

    @property
    def summary(self) -> RankSummary | None:
        return decode(self.raw, self.path) if self.raw else None


def reduce_all(paths: list[Path], workers: int, progress: Progress | None = None) -> Iterator[Reduced]:
    """In the order of the paths."""
    if workers < 2 or len(paths) < 2:
        for done, path in enumerate(paths, 1):
            yield reduced(path)
            tell(progress, done, len(paths))
        return
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    every = [_Worker() for _ in range(min(workers, len(paths)))]
    for worker in every:
        worker.start()
        idle.put(worker)

    def one(path: Path) -> Reduced:
        worker = idle.get()
        try:
            return worker.reduce(path)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(len(every)) as threads:
            for done, found in enumerate(threads.map(one, paths), 1):
                yield found
                tell(progress, done, len(paths))
    finally:
        for worker in every:  # all first: one that was forked later holds the ends of those before it
            worker.hang_up()
        for worker in every:
            worker.end()


def worker_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tell(progress: Progress | None, done: int, of: int) -> None:
    if progress is not None:
        progress(done, of)


class _Worker:
    """A process that is given paths and gives back summaries; another one once it has ended."""

    def __init__(self) -> None:
        self._pipes: tuple[IO[bytes], IO[bytes]] | None = None
        self._wait: Callable[[], object] = int

    def reduce(self, path: Path) -> Reduced:
        requests, answers = self._pipes or self.start()
        with suppress(OSError, msgspec.MsgspecError):
            _send(requests, os.fsencode(path))
            answer = _receive(answers)
            if answer is not None:
                return msgspec.msgpack.decode(answer, type=Reduced)
        self.hang_up()
        self.end()
        return Reduced(str(path), refused=f"{path} could not be reduced: the process that read it ended.")

    def start(self) -> tuple[IO[bytes], IO[bytes]]:
        """A fork has all imported that this process has; beside threads it may hang."""
        alone = hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1
        self._pipes = self._forked() if alone else self._spawned()
        return self._pipes

    def _forked(self) -> tuple[IO[bytes], IO[bytes]]:
        import findwall.ranks.reduced.summarising  # noqa: F401 - once for all workers
        from findwall.readers.reader import all_readers

        all_readers()
        (theirs, asked), (answered, ours) = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads of libraries, which know of forks
            child = os.fork()
        if child == 0:
            try:
                os.close(asked)
                os.close(answered)
                quiet = os.open(os.devnull, os.O_RDWR)
                for stream in range(3):
                    os.dup2(quiet, stream)
                _serve(os.fdopen(theirs, "rb"), os.fdopen(ours, "wb"))
            finally:
                os._exit(0)
        os.close(theirs)
        os.close(ours)
        self._wait = lambda: os.waitpid(child, 0)
        return os.fdopen(asked, "wb"), os.fdopen(answered, "rb")

    def _spawned(self) -> tuple[IO[bytes], IO[bytes]]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        process = subprocess.Popen(
            [sys.executable, "-m", "findwall.ranks.reduced.mapping"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert process.stdin is not None and process.stdout is not None
        self._wait = process.wait
        return process.stdin, process.stdout

    def hang_up(self) -> None:
        """It ends once nobody can ask it any more."""
        pipes, self._pipes = self._pipes or (), None
        for pipe in pipes:
            with suppress(OSError):
                pipe.close()

    def end(self) -> None:
        self._wait()
        self._wait = int


def _send(pipe: IO[bytes], raw: bytes) -> None:
    pipe.write(_LENGTH.pack(len(raw)) + raw)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """None where the other end is closed."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return pipe.read(_LENGTH.unpack(head)[0])


def reduced(path: Path) -> Reduced:
    """One path, in this process."""
    from findwall.ranks.reduced.rank_in_job import summary_of
    from findwall.ranks.reduced.summarising import summarise  # not where only their bytes pass through
    from findwall.readers.allowance import Allowance
    from findwall.readers.rank_summaries import KIND
    from findwall.readers.reader import reader_of

    name = str(path)
    try:
        if path.is_dir() and (path / MEASUREMENT_FILE).is_file():
            return Reduced(name, encode(summary_of(path)))
        reader = reader_of(path)
        if reader is None or reader.alone:
            return Reduced(name)
        run = reader.read(path, None, 0, Allowance(None))
        if reader.kind == KIND:
            made = run.first.summary
        else:
            made = next((summarise(timeline) for timeline in run.timelines), None)
        if made is None:
            return Reduced(name, refused=f"{path} has no device events.")
        return Reduced(name, encode(made))
    except InputError as error:
        return Reduced(name, refused=str(error))
    except Exception as error:  # noqa: BLE001 - one odd file is not the end of a thousand
        return Reduced(name, refused=f"{path} could not be reduced ({type(error).__name__}: {error}).")


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """What a worker does until nobody asks any more."""
    from findwall.readers.remote_paths import place

    while (raw := _receive(requests)) is not None:
        _send(answers, msgspec.msgpack.encode(reduced(place(os.fsdecode(raw)))))


if __name__ == "__main__":
    said = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not reach the answers
    _serve(sys.stdin.buffer, said)
