"""Blocks decoded over the cores, results in the order of the blocks.

Workers are forked, so nothing has to be imported again, and hold one block at a time: a worker that
has work never waits for the parent to take anything else, so the two cannot wait for each other.
A worker that dies costs its block a second reading, in this process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from findwall.readers.raw_file import RawFile
from findwall.readers.torch_trace.decode import Decoded, decode_block
from findwall.readers.torch_trace.text_blocks import Block

if TYPE_CHECKING:  # a small file is read before this would be loaded
    from multiprocessing.connection import Connection

# All chosen by hand, not calibrated.
_BLOCKS_AHEAD = 4  # cut before a worker asks for them; a file of fewer is read without workers
_MOST_WORKERS = 16  # more than this wait for the disk and the merge
_BLOCKS_BEHIND = 4  # a worker, out at a time: results wait in memory for the one before them


class _Process(Protocol):
    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...

    def kill(self) -> None: ...


class _Worker(msgspec.Struct):
    process: _Process
    pipe: Connection
    job: int | None = None  # the block it holds


def worker_count(asked: int | None) -> int:
    """How many processes may decode; 0 means: in this one."""
    if asked is not None:
        return asked if asked > 1 and _may_fork() else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return min(cores, _MOST_WORKERS) if cores > 1 and _may_fork() else 0


def _may_fork() -> bool:
    """Forking a process that has threads, or a GPU's context, can leave locks held for ever."""
    return (
        sys.platform == "linux"
        and threading.active_count() == 1
        and "torch" not in sys.modules
        and not _is_daemon()
    )


def _is_daemon() -> bool:
    """Whether multiprocessing started this process as one that may have no children."""
    multiprocessing = sys.modules.get("multiprocessing")  # where it did, it is loaded
    return multiprocessing is not None and bool(multiprocessing.current_process().daemon)


def decode_all(source: RawFile, blocks: Iterator[Block], workers: int) -> Iterator[tuple[Block, Decoded]]:
    """Every block with its rows, in order. A caller may stop early."""
    first = list(islice(blocks, _BLOCKS_AHEAD))
    if workers == 0 or len(first) < _BLOCKS_AHEAD:
        for block in chain(first, blocks):
            yield block, decode_block(block.load(source))
        return
    pool = _Pool(source, workers)
    try:
        yield from pool.run(deque(first), blocks)
    finally:
        pool.close()


class _Pool:
    def __init__(self, source: RawFile, workers: int) -> None:
        import multiprocessing

        self._source = source
        self._workers: list[_Worker] = []
        context = multiprocessing.get_context("fork")
        with warnings.catch_warnings():
            # numpy's idle BLAS threads make newer Pythons warn; they take no lock we use.
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(workers):
                ours, theirs = context.Pipe()
                inherited = [worker.pipe for worker in self._workers] + [ours]
                process = context.Process(target=_serve, args=(theirs, inherited, source), daemon=True)
                process.start()
                theirs.close()
                self._workers.append(_Worker(process, ours))

    def run(self, ready: deque[Block], blocks: Iterator[Block]) -> Iterator[tuple[Block, Decoded]]:
        held: dict[int, Block] = {}
        done: dict[int, Decoded] = {}
        handed_out = returned = 0
        exhausted = False
        while True:
            while returned in done:
                yield held.pop(returned), done.pop(returned)
                returned += 1
            idle = next((w for w in self._workers if w.job is None), None)
            # Results wait for the one before them: do not let them pile up behind a slow block.
            if ready and idle and handed_out - returned < _BLOCKS_BEHIND * len(self._workers):
                held[handed_out] = ready.popleft()
                self._give(idle, handed_out, held[handed_out])
                handed_out += 1
            elif not exhausted and len(ready) < _BLOCKS_AHEAD:
                block = next(blocks, None)
                exhausted = block is None
                if block is not None:
                    ready.append(block)
            elif any(w.job is not None for w in self._workers):
                self._collect(held, done)
            elif ready:  # no worker is left
                held[handed_out] = ready.popleft()
                done[handed_out] = decode_block(held[handed_out].load(self._source))
                handed_out += 1
            elif returned == handed_out:
                return
            else:
                done[returned] = decode_block(held[returned].load(self._source))

    def _give(self, worker: _Worker, job: int, block: Block) -> None:
        worker.job = job
        with suppress(OSError):  # a dead one is noticed, and made good, when its answer is collected
            worker.pipe.send((block.text, block.offset, block.length))

    def _collect(self, held: dict[int, Block], done: dict[int, Decoded]) -> None:
        """Wait for an answer, or for the end of a worker."""
        from multiprocessing.connection import wait

        busy = {worker.pipe: worker for worker in self._workers if worker.job is not None}
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            job, worker.job = worker.job, None
            assert job is not None
            try:
                answer = worker.pipe.recv()
            except (EOFError, OSError):
                answer = None
                self._workers.remove(worker)
                worker.pipe.close()
            done[job] = answer if answer is not None else decode_block(held[job].load(self._source))

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(timeout=0.5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _serve(pipe: Connection, inherited: list[Connection], source: RawFile) -> None:
    """A worker: decode what comes until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    for other in inherited:  # or a dead parent would go unnoticed
        other.close()
    while True:
        try:
            text, offset, length = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = decode_block(Block(text, offset, length).load(source))
        except Exception:  # noqa: BLE001 - the parent reads the block again and raises what there is to raise
            answer = None
        try:
            pipe.send(answer)
        except OSError:
            return


__all__: list[str] = ["decode_all", "worker_count"]
