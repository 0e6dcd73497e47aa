"""Peaks phase by phase: on the cores for real, on a device as torch's allocator would tell them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from findwall.agent.timing.step_peaks import BY, WATCHED, StepPeaks
from findwall.apply.registry import REGISTRY
from findwall.machine.peak_meters import ResidentMeter
from findwall.model.measurement import Measurement
from findwall.trial.peak_lines import predicted_peak

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _taken_out() -> Iterator[None]:
    yield
    for put in REGISTRY.puts:
        if put.by == BY:
            put.undo()


class FakeAllocator:
    """`torch.cuda`, as far as it is asked: what is allocated, the peak since it was reset, the segments."""

    def __init__(self) -> None:
        self.allocated = self.peak = self.reserved = self.most_reserved = 0
        self.share = 1.0  # that the job allowed itself
        self.others = 2_000
        self.resets = 0

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def get_device_properties(self, _device: int) -> Any:
        return SimpleNamespace(total_memory=12_000)

    def get_per_process_memory_fraction(self, _device: int) -> float:
        return self.share

    def take(self, amount: int) -> None:
        self.allocated += amount
        self.peak = max(self.peak, self.allocated)
        self.reserved = max(self.reserved, self.allocated + 20)
        self.most_reserved = max(self.most_reserved, self.reserved)

    def memory_allocated(self, _device: int = 0) -> int:
        return self.allocated

    def max_memory_allocated(self, _device: int = 0) -> int:
        return self.peak

    def memory_reserved(self, _device: int = 0) -> int:
        return self.reserved

    def max_memory_reserved(self, _device: int = 0) -> int:
        return self.most_reserved

    def mem_get_info(self, _device: int = 0) -> tuple[int, int]:
        return 12_000 - self.others - self.reserved, 12_000

    def reset_peak_memory_stats(self, _device: int = 0) -> None:
        self.peak, self.most_reserved = self.allocated, self.reserved
        self.resets += 1


class Steps:
    """An optimizer with torch's own hooks around it, whose step takes memory and gives it back."""

    def __init__(self, update: Any) -> None:
        class Update(torch.optim.SGD):
            def step(self, closure: Any = None) -> None:  # type: ignore[override]
                update()

        self._optimizer = Update([torch.nn.Parameter(torch.ones(1))], lr=0.1)

    def step(self) -> None:
        self._optimizer.step()


def test_the_device_s_phases_are_told_apart() -> None:
    cuda = FakeAllocator()
    peaks = StepPeaks(SimpleNamespace(cuda=cuda))

    def update() -> None:
        cuda.take(100)
        cuda.take(-100)

    steps = Steps(update)
    cuda.take(500)  # the weights
    peaks.first_batch()
    for _ in range(WATCHED + 3):
        peaks.first_batch()
        cuda.take(300)
        cuda.take(-300)
        steps.step()
    found = peaks.told(Measurement(device_kind="gpu", peak_memory=700, peak_reserved=900))
    assert (found.of, found.set_up, found.working, found.optimizer, found.held) == (
        "allocated",
        500,
        800,
        600,
        500,
    )
    assert found.whole == 800 and found.reserved == 900 and found.limit == 10_000 and found.workers is None
    assert cuda.resets == 1 + 2 * WATCHED  # no more than it needs
    steps.step()
    assert cuda.resets == 1 + 2 * WATCHED  # and nothing after that


def test_the_limit_is_what_the_job_allows_itself_and_what_others_leave_in_the_end() -> None:
    cuda = FakeAllocator()
    cuda.share = 0.5
    cuda.take(100)
    peaks, steps = StepPeaks(SimpleNamespace(cuda=cuda)), Steps(lambda: None)
    peaks.first_batch()
    steps.step()
    assert peaks.told(Measurement(device_kind="gpu")).limit == 6_000
    cuda.share = 1.0
    peaks, steps = StepPeaks(SimpleNamespace(cuda=cuda)), Steps(lambda: None)
    peaks.first_batch()
    cuda.others = 5_000  # a library of the job took what it works in
    steps.step()
    assert peaks.told(Measurement(device_kind="gpu")).limit == 7_000


def test_a_larger_peak_of_later_steps_is_of_the_phase_that_was_largest() -> None:
    cuda = FakeAllocator()
    peaks = StepPeaks(SimpleNamespace(cuda=cuda))
    cuda.take(500)
    peaks.first_batch()
    Steps(lambda: (cuda.take(100), cuda.take(-100))).step()
    found = peaks.told(Measurement(device_kind="gpu", peak_memory=750))
    assert found.working == 500 and found.optimizer == 750


def test_without_an_optimizer_what_was_there_before_the_first_batch_stays() -> None:
    cuda = FakeAllocator()
    cuda.take(500)
    peaks = StepPeaks(SimpleNamespace(cuda=cuda))
    peaks.first_batch()
    found = peaks.told(Measurement(device_kind="gpu", peak_memory=800))
    assert (found.held, found.working) == (500, 800)
    assert predicted_peak({8: found}, 16) == pytest.approx(500 + 2 * 300)


def test_the_cores_count_pages() -> None:
    peaks = StepPeaks(torch)
    peaks.first_batch()

    def update() -> None:
        torch.ones(96 * MIB // 4)

    steps = Steps(update)
    for _ in range(2):
        torch.ones(32 * MIB // 4)
        steps.step()
    found = peaks.told(Measurement(peak_resident=0))
    if found.set_up is None:
        pytest.skip("this system does not forget a peak")
    assert found.of == "resident" and found.held is not None and found.reserved == found.whole
    assert found.optimizer is not None and found.working is not None
    assert found.optimizer - found.held > 90 * MIB > found.working - found.held > 25 * MIB


def test_what_the_c_library_keeps_is_no_part_of_what_is_held() -> None:
    """Blocks too small to be given back by themselves."""
    peaks = StepPeaks(torch)
    peaks.first_batch()
    kept: list[Any] = []

    def update() -> None:
        small = [torch.ones(1 << 12) for _ in range(4096)]
        kept.append(torch.ones(1 << 12))  # on top of them
        del small

    steps = Steps(update)
    for _ in range(3):
        steps.step()
    found = peaks.told(Measurement(peak_resident=1 << 50))
    if found.held is None or found.optimizer is None:
        pytest.skip("this system does not forget a peak")
    assert found.optimizer - found.held > 50 * MIB
    assert found.reserved is not None and found.reserved - found.beside == 1 << 50
    assert found.optimizer < 1 << 40  # what later steps held may be kept


def test_a_system_that_tells_no_phases_still_tells_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_self: ResidentMeter) -> int:
        raise PermissionError("clear_refs")

    monkeypatch.setattr(ResidentMeter, "take_peak", refused)
    peaks = StepPeaks(torch)
    peaks.first_batch()
    Steps(lambda: None).step()
    found = peaks.told(Measurement(peak_resident=123))
    assert found.working == found.whole == 123 and found.set_up is None and found.optimizer is None
