"""Timelines written out row by row, for tests that need ops, launches and kernels with their arguments."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from findwall.model.events import (
    COLUMN_TYPES,
    Details,
    DeviceProperties,
    Events,
    Header,
    Kind,
    ReadQuality,
    Timeline,
)


class Book:
    """Ops open and close on one thread; each kernel is launched where it is written and runs right after."""

    def __init__(self, device: str = "NVIDIA H200") -> None:
        self.rows: list[dict[str, Any]] = []
        self.names: dict[str, int] = {}
        self.inputs: list[bytes] = []
        self.launches: list[bytes] = []
        self.extras: list[bytes] = []
        self.device = device
        self.now = 0
        self.correlation = 0

    def _add(self, kind: Kind, name: str, start: int, end: int, **columns: int) -> int:
        index = self.names.setdefault(name, len(self.names))
        self.rows.append({"kind": kind, "name": index, "start": start, "end": end, **columns})
        return len(self.rows) - 1

    @staticmethod
    def _intern(kept: list[bytes], value: dict[str, Any]) -> int:
        raw = msgspec.json.encode(value)
        if raw not in kept:
            kept.append(raw)
        return kept.index(raw)

    def open(
        self,
        name: str,
        dims: list[Any] | None = None,
        types: list[Any] | None = None,
        concrete: list[str] | None = None,
        kind: Kind = Kind.OP,
        sequence: int = -1,
        strides: list[Any] | None = None,
    ) -> int:
        columns = {"sequence": sequence}
        if dims is not None:
            filled = {
                "dims": dims,
                "types": types or [],
                "strides": strides or [],
                "concrete": concrete or [],
            }
            columns["inputs"] = self._intern(self.inputs, filled)
        row = self._add(kind, name, self.now, -1, **columns)
        self.now += 1
        return row

    def close(self, row: int) -> None:
        self.now += 1
        self.rows[row]["end"] = self.now

    def kernel(
        self,
        name: str,
        us: float = 100.0,
        grid: tuple[int, int, int] | None = None,
        block: tuple[int, int, int] = (128, 1, 1),
        launched: bool = True,
        call: str = "cudaLaunchKernel",
        kind: Kind = Kind.KERNEL,
        nbytes: int = -1,
        stream: int = 7,
        collective: str | None = None,
    ) -> int:
        self.correlation += 1
        correlation = self.correlation if launched else -1
        if launched:
            self._add(Kind.RUNTIME, call, self.now, self.now + 1, correlation=correlation)
            self.now += 2
        columns = {"correlation": correlation, "stream": stream, "thread": 100 + stream, "nbytes": nbytes}
        if grid is not None:
            columns["launch"] = self._intern(self.launches, {"grid": grid, "block": block})
        if collective is not None:
            columns["extra"] = self._intern(self.extras, {"collective": collective})
        row = self._add(kind, name, self.now, self.now + int(us * 1000), device=0, **columns)
        self.now += int(us * 1000) + 1
        return row

    def op(
        self, name: str, dims: list[Any], types: list[Any], kernel: str, us: float = 100.0, **more: Any
    ) -> int:
        """An op with one kernel; the kernel's row."""
        row = self.open(name, dims, types, **more)
        launched = self.kernel(kernel, us)
        self.close(row)
        return launched

    def timeline(self) -> Timeline:
        columns = {
            name: np.array(
                [row.get(name, 0 if name in ("process", "thread") else -1) for row in self.rows], dtype
            )
            for name, dtype in COLUMN_TYPES.items()
        }
        threads = [(0, str(index)) for index in range(int(columns["thread"].max(initial=0)) + 1)]
        return Timeline(
            path="drawn",
            events=Events(**columns),
            names=list(self.names),
            processes=["1"],
            threads=threads,
            details=Details(self.inputs, self.launches, self.extras),
            header=Header(devices=(DeviceProperties(0, self.device, sm_count=132),)),
            quality=ReadQuality(),
        )
