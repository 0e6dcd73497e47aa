"""The few questions the measurement asks torch about device and compiler, answered without side effects."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from findwall.machine.host_memory import host_limit, resident
from findwall.model.machine import Holding

GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
UNCACHED = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")


def device_in_use(torch: Any) -> int | None:
    """The GPU this process computes on; None for a CPU job. CUDA is never initialised for the question."""
    if not torch.cuda.is_initialized():
        return None
    if not counts_memory(torch):
        return int(torch.cuda.current_device())
    used = [torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())]
    return max(range(len(used)), key=used.__getitem__) if any(used) else None


def counts_memory(torch: Any) -> bool:
    """Whether torch knows how much memory is taken: not with its cache off, or another allocator in place."""
    if any(name in os.environ for name in UNCACHED):
        return False
    try:
        torch.cuda.memory_allocated()
    except RuntimeError:  # an allocator of somebody's own need not count
        return False
    return True


def may_use_gpu(torch: Any) -> bool:
    """Whether this process could compute on a GPU. CUDA itself would set itself up to answer."""
    built_for_it = torch.version.cuda or getattr(torch.version, "hip", None)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return bool(built_for_it) and not hidden and any(Path(file).exists() for file in GPU_FILES)


def allocations(torch: Any) -> int | None:
    """How often the job has taken memory on its GPU, which nearly every op does; None where nobody knows."""
    if not torch.cuda.is_initialized() or not counts_memory(torch):
        return None
    device = device_in_use(torch)
    return 0 if device is None else int(torch.cuda.memory_stats(device).get("allocation.all.allocated", 0))


def brings_modules(torch: Any) -> bool:
    """Whether the job, or a library of it, has modules of its own: it will call them, as a rule."""
    return any(not kind.__module__.startswith("torch.") for kind in subclasses(torch.nn.Module))


def subclasses(parent: Any) -> Iterator[Any]:
    for child in parent.__subclasses__():
        yield child
        yield from subclasses(child)


def is_capturing(torch: Any) -> bool:
    """Whether a CUDA graph is being captured: nothing may be asked of the device then."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def reserved_bytes(torch: Any, device: int | None) -> int:
    try:
        return 0 if device is None else int(torch.cuda.memory_reserved(device))
    except RuntimeError:  # not counted
        return 0


class Compilations:
    """How many graphs torch.compile has compiled since the last look."""

    def __init__(self) -> None:
        self._last = compiled_graphs()

    def new(self) -> int:
        total = compiled_graphs()
        new, self._last = total - self._last, total
        return max(new, 0)


def compiled_graphs() -> int:
    """How many graphs torch.compile has compiled so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    stats = counters.get("stats") if counters is not None else None
    return int(stats.get("unique_graphs", 0)) if stats else 0


def synchronize(torch: Any) -> None:
    """Wait until the device has done all that it was given."""
    torch.cuda.synchronize()


def memory(torch: Any, device: int | None) -> tuple[int | None, int | None]:
    """Peak bytes the job's tensors took, and the device's total."""
    if device is None:
        return None, None
    total = int(torch.cuda.get_device_properties(device).total_memory)
    return (int(torch.cuda.max_memory_allocated(device)) if counts_memory(torch) else None), total


def reserved_peak(torch: Any, device: int | None) -> int | None:
    """The most bytes that torch took from the driver."""
    if device is None or not counts_memory(torch):
        return None
    return int(torch.cuda.max_memory_reserved(device))


def memory_totals(torch: Any, device: int | None) -> Holding | None:
    """What the job holds now; None where nobody counts it. On a GPU it takes 150 us."""
    if device is None:
        return resident()
    if not counts_memory(torch):
        return None
    stats = torch.cuda.memory_stats(device)
    names = ("allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak")
    return Holding(*(int(stats.get(name, 0)) for name in names))


def memory_limit(torch: Any, device: int | None) -> int | None:
    """How much the job could hold in the end; None unknown. Of what others take of a GPU nothing is known."""
    if device is None:
        return host_limit()
    total = int(torch.cuda.get_device_properties(device).total_memory)
    share = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # torch 2.8
    return total if share is None else int(total * share(device))


def device_name(torch: Any, device: int | None) -> str | None:
    return None if device is None else str(torch.cuda.get_device_name(device))


def inside_backward(torch: Any) -> bool:
    """A profiler must not be started or stopped inside autograd: its state is put back when that ends."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def batch_size(batch: Any) -> tuple[float, str] | None:
    """Samples or tokens in a batch, from the first tensor in it."""
    tensor = _first_tensor(batch, 3)
    if tensor is None or tensor.dim() == 0:
        return None
    if tensor.dim() == 2 and not tensor.is_floating_point() and tensor.shape[1] > 1:
        return float(tensor.numel()), "tokens"
    return float(tensor.shape[0]), "samples"


def _first_tensor(value: Any, depth: int) -> Any | None:
    if hasattr(value, "dim") and hasattr(value, "is_floating_point"):
        return value
    if depth == 0:
        return None
    members = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for member in members:
        found = _first_tensor(member, depth - 1)
        if found is not None:
            return found
    return None
