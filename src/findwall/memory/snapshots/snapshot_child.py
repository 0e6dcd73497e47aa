"""Decoding in a process of its own, with so much memory and no more: a few bytes can ask for all there is.

The child opens the file, decodes it, and writes the columns to its standard output: a header's length, the
header as JSON, then the columns as they lie in memory.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np

from findwall.errors import FindwallError, InputError
from findwall.model.memory_history import (
    Blocks,
    CodeFrame,
    DeviceHistory,
    Marked,
    MemoryEvents,
    MemoryHistory,
    Segments,
)

if TYPE_CHECKING:
    from findwall.memory.snapshots.pickled_values import Data
    from findwall.readers.raw_file import RawFile

# What an interpreter with numpy takes before it reads anything: address space, of which little is used.
OWN_BYTES = 1 << 30
# Chosen by hand: a busy machine decodes some megabytes a second where no two events are alike.
LEAST_SECONDS, BYTES_A_SECOND = 60, 1 << 20
MOST_HEADER_BYTES = 1 << 30
NO_MEMORY = 3  # how the child ends where its limit does not suffice
HINT = "Give what torch.cuda.memory._dump_snapshot(FILE) wrote."
PARTS = (MemoryEvents, Segments, Blocks)


class _Header(msgspec.Struct):
    """What comes first. `refused`: nothing follows, and why."""

    refused: str = ""
    hint: str = ""
    devices: list[int] = []
    columns: list[tuple[str, int]] = []  # type and length, of all devices in the order of `PARTS`
    frames: list[CodeFrame] = []
    stacks: list[list[int]] = []
    marked: list[Marked] = []
    settings: str = ""


def decoded(path: Path, memory: int) -> MemoryHistory:
    """The history in a file, decoded within so many bytes; raises InputError."""
    command = [sys.executable, "-m", __name__, os.fspath(path), str(memory)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    ) as child:
        assert child.stdout is not None
        try:
            found = _received(path, child.stdout)
        except (EOFError, ValueError, msgspec.MsgspecError) as error:
            raise _died(path, child.wait(), memory) from error
        except BaseException:  # Ctrl-C as well: nobody else would end it
            child.kill()
            raise
    return found


def _environment() -> dict[str, str]:
    """findwall is found where this process found it."""
    own = str(Path(__file__).resolve().parents[3])
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    # One thread: numpy's own would each reserve address space.
    single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **single, "PYTHONPATH": os.pathsep.join([own, *given]), "PYTHONSAFEPATH": "1"}


def _received(path: Path, stream: IO[bytes]) -> MemoryHistory:
    size = int.from_bytes(_exactly(stream, 8), "little")
    if size > MOST_HEADER_BYTES:
        raise ValueError
    header = msgspec.json.decode(_exactly(stream, size), type=_Header)
    if header.refused:
        raise InputError(header.refused, header.hint)
    columns = [
        np.frombuffer(_exactly(stream, np.dtype(kind).itemsize * length), kind)
        for kind, length in header.columns
    ]
    devices = []
    for number in header.devices:
        parts: list[Any] = []
        for part in PARTS:
            count = len(part.__struct_fields__)
            parts.append(part(*columns[:count]))
            columns = columns[count:]
        devices.append(DeviceHistory(number, *parts))
    marked = tuple(header.marked)
    return MemoryHistory(str(path), tuple(devices), header.frames, header.stacks, marked, header.settings)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


def _died(path: Path, status: int, memory: int) -> FindwallError:
    if status > 0 and status != NO_MEMORY:
        return FindwallError(f"{path} could not be decoded: the process that did it failed.", HINT)
    if status == -signal.SIGXCPU:
        return InputError(f"{path} takes too long to decode for what it holds.", HINT)
    return InputError(
        f"{path} needs more than {memory >> 20:,} MiB of memory to decode.",
        "Record fewer events (max_entries), or allow more with --max-memory, on a machine that has it.",
    )


# -- in the child ------------------------------------------------------------------------------------------


def main(path: Path, memory: int) -> None:
    gc.disable()  # millions of objects come, none in circles
    resource.setrlimit(resource.RLIMIT_AS, (memory + OWN_BYTES, memory + OWN_BYTES))
    from findwall.memory.snapshots.pickled_values import RefusedError
    from findwall.memory.snapshots.plain_pickle import PlainPickle
    from findwall.memory.snapshots.snapshot_shape import history

    try:
        found = history(str(path), PlainPickle(_all(path, memory)))
    except RefusedError as refused:
        _write(_Header(f"{path} {refused}.", HINT), [])
        return
    except InputError as error:
        _write(_Header(error.message, error.hint), [])
        return
    except MemoryError:
        os._exit(NO_MEMORY)
    _write(*_message(found))


def _message(found: MemoryHistory) -> tuple[_Header, list[np.ndarray]]:
    parts = [part for device in found.devices for part in (device.events, device.segments, device.blocks)]
    columns = [getattr(part, name) for part in parts for name in part.__struct_fields__]
    header = _Header(
        devices=[device.device for device in found.devices],
        columns=[(column.dtype.str, len(column)) for column in columns],
        frames=list(found.frames),
        stacks=[list(map(int, stack)) for stack in found.stacks],
        marked=list(found.marked),
        settings=found.settings,
    )
    return header, columns


def _all(path: Path, memory: int) -> Data:
    from findwall.readers.raw_file import RawFile

    source = RawFile(path)
    try:
        found = _mapped(source, memory) if source.seekable and source.size else _streamed(source, memory)
    finally:
        source.close()
    if source.cut_off:
        raise InputError(f"{path} is damaged: the compressed file is cut off or broken.", HINT)
    seconds = LEAST_SECONDS + len(found) // BYTES_A_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # at the second it could not say why
    return found


def _streamed(source: RawFile, memory: int) -> bytearray:
    found = bytearray()
    while part := source.read():
        found += part
        if len(found) > memory:
            raise _too_long(source.path, memory)
    return found


def _mapped(source: RawFile, memory: int) -> mmap.mmap:
    """Read once into memory that is handed out as it fills; a bytearray would be cleared before."""
    size = source.size or 0
    if size > memory:
        raise _too_long(source.path, memory)
    found = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with memoryview(found) as whole:
        at = 0
        try:
            while at < size and (count := os.preadv(source.descriptor, [whole[at:]], at)):
                at += count
        except OSError as error:
            raise InputError(f"{source.path} cannot be read: {error.strerror}.") from error
    if at < size:
        found.resize(at)
    return found


def _too_long(path: Path, memory: int) -> InputError:
    return InputError(f"{path} is too long: more than {memory >> 20:,} MiB.", "Allow more with --max-memory.")


def _write(header: _Header, columns: list[np.ndarray]) -> None:
    text = msgspec.json.encode(header)
    out = sys.stdout.buffer
    out.write(len(text).to_bytes(8, "little"))
    out.write(text)
    for column in columns:
        out.write(np.ascontiguousarray(column).data if len(column) else b"")
    out.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)  # all was written: nobody waits for each object to be given back
