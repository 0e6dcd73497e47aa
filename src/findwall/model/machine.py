"""The machine: what it can do, what it said of itself while steps were timed, and how the job found it.

Unknown is None, never zero.
"""

from __future__ import annotations

import msgspec

CORES = " cores"  # how the name of a CPU ends here, behind the number of those that a process may use

# Math formats, as the ceilings name them. "fp32" is the vector pipe; "tf32" the tensor cores on fp32 data.
MATH_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
SIXTEEN_BITS = ("fp16", "bf16")


class Ceilings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ceilings of one device. A missing key or None is unknown, never zero."""

    device: str = ""
    source: str = "unknown"  # "measured", "table" or "unknown"
    origin: str = ""  # the document or the measurement the figures come from
    flops: dict[str, float] = {}  # achievable FLOP/s by math type: what floors use
    spec_flops: dict[str, float] = {}  # dense, vendor's figure: what MFU and refusals use
    bandwidth: float | None = None  # achievable bytes/s, read plus write
    spec_bandwidth: float | None = None
    l2_bytes: int | None = None
    sm_count: int | None = None
    h2d_pinned: float | None = None  # bytes/s
    h2d_pageable: float | None = None
    launch_s: float | None = None  # host seconds to issue one small kernel eagerly
    graph_launch_s: float | None = None  # device seconds a small kernel takes in a graph
    link_bandwidth: float | None = None  # all-reduce bus bandwidth, bytes/s
    doubt: str = ""  # why measured figures may be too low; empty: nothing known

    @property
    def known(self) -> bool:
        return bool(self.flops) and self.bandwidth is not None

    @property
    def of_cores(self) -> bool:
        """Whether they are of a CPU."""
        return self.device.endswith(CORES)


UNKNOWN_CEILINGS = Ceilings()


class Sampled(msgspec.Struct, frozen=True):
    """One figure over all its samples."""

    mean: float
    min: float
    max: float


class Counters(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hardware counters (GPM), averaged: how busy each part of the GPU was, in percent of the time."""

    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    fp64: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None


class Noted(msgspec.Struct, frozen=True):
    """The samples themselves, in order. None in a column: that was not answered."""

    seconds: list[float]  # since the first step was timed
    columns: dict[str, list[float | None]]  # sm_clock_mhz, power_w, temperature_c, memory_gib and the like


class CpuUse(msgspec.Struct, frozen=True):
    """Who kept the cores busy."""

    cores: int | None = None  # that the job may use; of one rank of several: its part of them
    others_busy: float | None = None  # how many of them other processes kept busy; None: or other ranks
    own_busy: float | None = None  # how many the job and its children did
    in_line_share: float | None = None  # of the time: the training thread could have run and had no core
    seconds: float | None = None
    # How many its children, loader workers most of all, kept busy or waited for in line; None: nobody knows.
    children_wanted: float | None = None
    threads: int | None = None  # that torch's ops may use in the training process
    # While the training thread took batches: cores that all its process's threads kept busy, and its part.
    loading_busy: float | None = None
    loading_own: float | None = None
    # In the training process alone: cores that the system's own code kept busy, and pages a second that it
    # was given, each of which the system clears first.
    system_busy: float | None = None
    faults: float | None = None


class Telemetry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank's machine said while its steps were timed."""

    max_sm_clock_mhz: int | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    sm_clock_mhz: Sampled | None = None
    power_w: Sampled | None = None
    temperature_c: Sampled | None = None
    throttle: dict[str, float] | None = None  # share of the samples in which each reason held the clocks
    memory_used: int | None = None  # bytes, by everyone
    other_processes: int | None = None
    gpm: Counters | None = None
    samples: int = 0
    cpu: CpuUse | None = None
    notes: tuple[str, ...] = ()
    noted: Noted | None = None


SHARED_GPU = "shared-gpu"  # the finding that another process uses the GPU
CONTENDED = "cpu-contended"  # the finding that others keep the cores busy
UNCACHED = (
    "pytorch-no-cuda-memory-caching"  # the finding that a variable switches torch's cache of memory off
)


class Finding(msgspec.Struct, frozen=True):
    """One thing about the environment that a person should know before their job is blamed."""

    id: str
    level: str  # "info" or "warning"
    sentence: str
    fix: str = ""


class Environment(msgspec.Struct, frozen=True):
    """The machine and its software as the job found them."""

    findings: tuple[Finding, ...] = ()
    versions: dict[str, str | None] = {}  # by package; None: not installed


class Holding(msgspec.Struct, frozen=True):
    """What a job holds at one moment, in bytes."""

    allocated: int
    reserved: int  # from the driver
    peak: int  # allocated, since the job's start or since it last forgot its peak


class MemoryTotals(msgspec.Struct):
    """What the job held at ends of steps, in bytes, a list a field."""

    step: list[int] = []  # the job's own count
    ns: list[int] = []  # since findwall saw torch
    allocated: list[int] = []  # on a CPU, what is resident of the process's own
    reserved: list[int] = []
    peak: int | None = None  # allocated, however often the job forgot it
    limit: int | None = None  # what it could hold in the end


NO_TELEMETRY = Telemetry()
UNKNOWN_ENVIRONMENT = Environment()


WHOLE_NUMBERS = frozenset({"long int", "long", "int", "short int", "short"})  # of more than 8 bits
_DTYPE_MATH = {
    "double": "fp64",
    "float": "fp32",
    "c10::half": "fp16",
    "half": "fp16",
    "c10::bfloat16": "bf16",
    "bfloat16": "bf16",
    "signed char": "int8",
    "unsigned char": "int8",
    "c10::complex<float>": "fp32",
    "c10::complex<double>": "fp64",
}


def math_of_dtype(dtype: str) -> str | None:
    """The format a tensor's type is computed in; fp32 here means the data, not the pipe."""
    dtype = dtype.lower()
    if "float8" in dtype:
        return "fp8"
    if "float4" in dtype:
        return "fp4"
    return _DTYPE_MATH.get(dtype)
