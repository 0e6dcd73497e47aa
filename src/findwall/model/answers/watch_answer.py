"""What the document says of a job that was watched from outside."""

from __future__ import annotations

from typing import Literal

import msgspec

from findwall.model.claims import Claim


class WatchedLine(msgspec.Struct):
    """A line of Python on which a thread was seen."""

    who: Literal["host", "worker"]
    doing: str  # loader, python, reads, ops, stalls, waits, compiles, collective or starts
    line: str  # "train.py:88"
    function: str
    share: float  # of the looks
    inside: str = ""  # what of a library it was in


class WatchedRow(msgspec.Struct):
    """One rank of a job that ran already. Shares are of the time; null is unknown."""

    rank: int | None
    pid: int
    gpu: str | None = None  # UUID
    sm_share: float | None = None
    tensor_share: float | None = None
    dram_share: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    memory_gib: float | None = None  # on the GPU, by everyone
    pcie_to_gpu_mib_s: float | None = None
    pcie_from_gpu_mib_s: float | None = None
    throttle: dict[str, float] | None = None  # share of the samples in which each reason held the clocks
    other_processes: int | None = None  # on the same GPU
    cores: float | None = None  # that it and its workers kept busy
    workers: int = 0
    in_line_share: float | None = None  # its main thread could have run and had no core
    read_mib_s: float | None = None
    write_mib_s: float | None = None
    doing: dict[str, float] = {}  # share of the looks
    line: str | None = None
    odd: str = ""  # how it differs from the other ranks
    claim: Claim | None = None  # what `odd` says, as data


class Watch(msgspec.Struct):
    """What was seen of a job that ran already, from outside."""

    seconds: float
    looks: int  # at the Python line
    missed: int
    settle: str  # the command that would measure what cannot be known from outside
    ranks: list[WatchedRow] = []
    lines: list[WatchedLine] = []
    has_ended: bool = False
