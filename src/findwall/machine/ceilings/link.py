"""All-reduce bandwidth between the GPUs of this machine, from one process."""

from __future__ import annotations

from typing import Any

from findwall.machine.ceilings.clocks_used import HostClock
from findwall.machine.ceilings.measured_report import Rate, rate_of
from findwall.units import MIB

MESSAGE_BYTES = 512 * MIB


def all_reduce(torch: Any) -> Rate | None:
    """Bus bandwidth, 2 (n - 1) / n of the bytes a rank holds over the time; None with one GPU or no NCCL."""
    gpus = torch.cuda.device_count()
    nccl = getattr(torch.cuda, "nccl", None)
    if gpus < 2 or nccl is None:
        return None
    tensors = [torch.randn(MESSAGE_BYTES // 4, device=f"cuda:{index}") for index in range(gpus)]
    if not nccl.is_available(tensors):
        return None

    def work() -> None:
        nccl.all_reduce(tensors, tensors)
        for index in range(gpus):
            torch.cuda.synchronize(index)

    for _ in range(2):
        work()
    times = HostClock().each(work, 5)
    moved = 2.0 * (gpus - 1) / gpus * MESSAGE_BYTES
    return rate_of(
        "all-reduce", "bytes/s", moved, times, f"{MESSAGE_BYTES // MIB} MiB over {gpus} GPUs, bus bandwidth"
    )
