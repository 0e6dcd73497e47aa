"""The device that a job of this folder fills: a GPU; or, to try the benchmark itself, a part of the host's
memory that the process may not go beyond (OOM_JOBS_DEVICE=cpu)."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import resource

import torch

DEVICE = os.environ.get("OOM_JOBS_DEVICE", "cuda")
ON_HOST = 256 << 20  # bytes, beyond what the process has when it asks
M_MMAP_THRESHOLD = -3


def total_memory() -> int:
    atexit.register(_tell_peak)
    if DEVICE == "cuda":
        return int(torch.cuda.mem_get_info()[1])
    _limit_host(ON_HOST)
    return ON_HOST


def limit(share: float) -> None:
    """This process may take so much of the device."""
    if DEVICE == "cuda":
        torch.cuda.set_per_process_memory_fraction(share)
    else:
        _limit_host(int(share * ON_HOST))


def _limit_host(room: int) -> None:
    """Once: what was asked for first is the smaller. What a step imports is there before, and the C library
    gives each tensor back that is freed, as a device's allocator can use it again."""
    importlib.import_module("torch._dynamo")
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 64 << 10)
    with open("/proc/self/status", encoding="ascii") as file:
        held = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
    if resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (held + room, held + room))


def _tell_peak() -> None:
    """What the job's tensors took at the most, where somebody asks for it."""
    if DEVICE == "cuda" and "OOM_JOBS_PEAK" in os.environ:
        with open(os.environ["OOM_JOBS_PEAK"], "w", encoding="ascii") as file:
            file.write(str(torch.cuda.max_memory_allocated()))
