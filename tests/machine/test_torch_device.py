"""What torch knows of the device that a job computes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from findwall.machine import torch_device as machine


def torch_with(taken: list[int] | None, current: int = 1) -> Any:
    """A torch of two GPUs with so much memory taken; None: its allocator does not count."""

    def of(name: str) -> Any:
        def ask(device: int = 0) -> Any:
            if taken is None:
                raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")
            return (
                {"segment.all.allocated": 3, "allocation.all.allocated": 9}
                if "stats" in name
                else taken[device]
            )

        return ask

    names = ("memory_allocated", "max_memory_allocated", "memory_reserved", "memory_stats")
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: current,
        get_device_properties=lambda device: SimpleNamespace(total_memory=80),
        **{name: of(name) for name in names},
    )
    return SimpleNamespace(cuda=cuda)


def test_the_device_is_the_one_whose_memory_is_taken() -> None:
    torch = torch_with([0, 40], current=0)
    assert machine.device_in_use(torch) == 1
    assert machine.memory(torch, 1) == (40, 80)
    assert machine.allocations(torch) == 9
    assert machine.device_in_use(torch_with([0, 0])) is None


@pytest.mark.parametrize("why", ["cache off", "another allocator"])
def test_where_nobody_counts_memory_it_is_the_current_one(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = torch_with([0, 0] if why == "cache off" else None)
    if why == "cache off":
        monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    assert machine.device_in_use(torch) == 1
    assert machine.memory(torch, 1) == (None, 80)
    assert machine.allocations(torch) is None
    assert machine.reserved_bytes(torch, 1) == 0
