"""Kernels as Nsight Compute counted them, one launch each. Shares are of one; unknown is None, never zero."""

from __future__ import annotations

import msgspec

NCU = "ncu"  # the kind of a run that is nothing but such kernels

Dims = tuple[int, int, int]


class NcuKernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One profiled launch. Shares of a unit are of its peak over the kernel's whole time."""

    name: str
    grid: Dims | None = None
    block: Dims | None = None
    duration_ns: float | None = None
    dram_bytes: float | None = None  # read and written
    dram: float | None = None  # share of the DRAM's peak bandwidth
    memory: float | None = None  # the same of the busiest of DRAM, L2 and L1
    sm: float | None = None  # the busiest pipe of the multiprocessors, the tensor pipe among them
    tensor: float | None = None
    occupancy: float | None = None  # achieved
    most_occupancy: float | None = None  # what the launch allows
    limited_by: tuple[str, ...] = ()  # what allows no more: registers, shared memory, block size ...
    waves: float | None = None
    capability: int | None = None  # the generation of its device: the first number of the compute capability
    gmma: float | None = None  # share of the tensor pipe's peak in instructions for whole groups of warps
    spills: float | None = None  # requests to local memory because of registers that do not suffice
    wasted: float | None = None  # share of the sectors moved that coalesced accesses would not move
    bank_conflicts: float | None = None  # of the worse of shared loads and stores: share of its wavefronts
    stall: str | None = None  # what warps wait for most, as Nsight Compute calls it
    stall_share: float | None = None  # of the cycles between two instructions of a warp


class NcuReport(msgspec.Struct, frozen=True):
    """Kernels in the order they were launched, and what the file says of their device."""

    path: str
    kernels: tuple[NcuKernel, ...]
    device: str | None = None
    page: str = ""  # "raw", "details" or "report": how much it can tell
    notes: tuple[str, ...] = ()
