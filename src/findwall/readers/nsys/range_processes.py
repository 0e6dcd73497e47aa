"""Ranges read in other processes while this one reads the device's tables: they are most of a large export.

Each process opens the export for itself. One that dies costs its part a second reading.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from findwall.errors import InputError
from findwall.readers.nsys.database import RANGES, Database
from findwall.readers.nsys.ranges import Part, read_part
from findwall.readers.torch_trace.decoding_pool import worker_count

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# Both chosen by hand: below, a process costs more than it saves; this one has other tables to read, too.
WORTH_A_PROCESS_ROWS = 200_000
OWN_SHARE = 0.5


class RangesBeside:
    """Starts at once; `parts` waits for the others after this process has read its own part."""

    def __init__(self, database: Database, workers: int | None) -> None:
        self._database = database
        self._own: tuple[int, int] | None = None
        self._others: list[tuple[Any, Connection, tuple[int, int]]] = []
        count = worker_count(workers)
        bounds = database.row_numbers(RANGES) if count > 1 else None
        if bounds is None or bounds[1] - bounds[0] < WORTH_A_PROCESS_ROWS:
            return
        first, last = bounds
        share = OWN_SHARE / count
        cuts = [first + int((last - first) * (share + (1 - share) * at / (count - 1))) for at in range(count)]
        self._own = (first, cuts[0])
        for begin, end in pairwise(cuts):
            self._others.append((*_start(database.path, begin + 1, end), (begin + 1, end)))

    def parts(self) -> list[Part]:
        found = [read_part(self._database, self._own)]
        for process, pipe, bounds in self._others:
            part: Any = InputError("")
            with suppress(EOFError, OSError):
                part = pipe.recv()
            pipe.close()
            process.join()
            # What another process could not read is read here, so that its error is told as any other.
            found.append(read_part(self._database, bounds) if isinstance(part, Exception) else part)
        self._others.clear()
        return [part for part in found if part is not None]

    def close(self) -> None:
        """Nobody waits for what is not wanted any more."""
        for process, pipe, _ in self._others:
            process.kill()
            process.join()
            pipe.close()
        self._others.clear()


def _start(path: Path, first: int, last: int) -> tuple[Any, Connection]:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        # numpy's idle BLAS threads make newer Pythons warn; they take no lock we use.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_serve, args=(theirs, path, first, last), daemon=True)
        process.start()
    theirs.close()
    return process, ours


def _serve(pipe: Connection, path: Path, first: int, last: int) -> None:
    import gc

    gc.disable()
    try:
        database = Database(path)  # a connection is not shared between processes
        part: Part | Exception | None = read_part(database, (first, last))
    except Exception as error:  # noqa: BLE001 - told to the one who asked, who reads the part itself
        part = InputError(str(error))
    with suppress(BrokenPipeError, OSError):
        pipe.send(part)
    pipe.close()
