"""Exports that no nsys wrote: a small sound one, how to change it, and what must come of any of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from contradictions import impossible
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import to_json
from findwall.readers import open_run
from nsys_tables import Export, global_id
from soak.chance import Chance

MS = 1_000_000
PROCESS = 10
THREAD = global_id(PROCESS, PROCESS)
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)"
STEPS, OPS = 6, 4
TABLES = ("KERNEL", "MEMCPY", "RUNTIME")


class Many:
    """How many rows: enough for what takes their square to be seen. Tests make it fewer."""

    rows = 200_000


HOSTILE: dict[str, Callable[[Path], Path | None]] = {}


def hostile(make: Callable[[Path], Path | None]) -> Callable[[Path], Path | None]:
    HOSTILE[make.__name__] = make
    return make


def sound(path: Path) -> Path:
    """A few steps of a few ops."""
    export = Export(path)
    name, call = export.string(ADD), export.string("cudaLaunchKernel_v7000")
    kernels, calls, ranges = [], [], []
    for step in range(STEPS):
        begin = (step + 1) * 10 * MS
        ranges.append(nvtx(begin, begin + 9 * MS, f"step {step}"))
        for op in range(OPS):
            start, number = begin + (op + 1) * 2 * MS, step * OPS + op + 1
            text = f"aten::add, seq = {number}, op_id = {number}, sizes = [[256, 1024], [256, 1024], []]"
            ranges.append(nvtx(start - 5_000, start + 8_000, text))
            calls.append((start, start + 5_000, 0, THREAD, number, call, 0))
            kernels.append(kernel(start + 10_000, start + MS, number, name))
    export.insert("CUPTI_ACTIVITY_KIND_KERNEL", kernels)
    export.insert("CUPTI_ACTIVITY_KIND_RUNTIME", calls)
    export.insert("NVTX_EVENTS", ranges)
    export.insert("TARGET_INFO_GPU", [(0, "NVIDIA H200", 150_000_000_000, 132)])
    export.insert("TARGET_INFO_CUDA_DEVICE", [(0, 0, PROCESS)])
    export.close()
    return path


def kernel(start: Any, end: Any, number: Any, name: Any, **other: Any) -> tuple[Any, ...]:
    device, stream, process = (other.get(one) for one in ("device", "stream", "process"))
    process = global_id(PROCESS) if process is None else process
    place = (start, end, device or 0, 1, 0, stream or 7, number, process)
    return *place, name, name, 32, 512, 1, 1, 128, 1, 1, 0, 0, None


def nvtx(start: Any, end: Any, text: Any, thread: Any = THREAD, **other: Any) -> tuple[Any, ...]:
    kind, text_id, payload = other.get("kind", 59), other.get("text_id"), other.get("payload")
    return start, end, kind, None, None, None, text, thread, None, text_id, 0, None, payload


def changed(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(";".join(statements))
    connection.commit()
    connection.close()


def filled(path: Path, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    connection = sqlite3.connect(path)
    width = len(connection.execute(f"PRAGMA table_info({table})").fetchall())
    connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * width)})", rows)
    connection.commit()
    connection.close()


def rewritten(path: Path, table: str, sql: str) -> None:
    """The schema's own entry of a table changed by hand, as no statement could."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table))
    connection.commit()
    connection.close()


def answered(path: Path) -> str:
    """An answer that can be, or a refusal in one line. Gives how it went."""
    try:
        diagnosis = examine(open_run([path], workers=1))
    except InputError as refusal:
        assert refusal.message
        assert refusal.hint
        assert "\n" not in str(refusal)
        return "refused"
    assert impossible(json.loads(to_json(diagnosis))) == []
    return "read"


def mutate_and_read(folder: Path, chance: Chance) -> str:
    """Bytes of a sound export changed at random."""
    path = sound(folder / "export.sqlite")
    data = bytearray(path.read_bytes())
    for _ in range(chance.number(1, 60)):
        at = chance.number(16, len(data) - 1)
        data[at] = chance.one_of([0, 1, 5, 13, 127, 128, 255, chance.number(0, 255)])
    path.write_bytes(data)
    return answered(path)
