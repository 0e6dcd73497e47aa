"""CPU time while batches are made, told by made-up clocks."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from findwall.agent.timing import loading
from findwall.agent.timing.loading import Loading
from findwall.fixes.loader import worker_threads
from findwall.fixes.loader.worker_threads import OneThreadEach
from findwall.model.machine import CpuUse, Telemetry

MS = 1_000_000
KNOWN = Telemetry(cpu=CpuUse(cores=16))


class Clocks:
    """Of a process with so many busy threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, threads: float) -> None:
        self.ns = 0
        monkeypatch.setattr(module, "thread_time_ns", lambda: self.ns)
        monkeypatch.setattr(module, "process_time_ns", lambda: int(self.ns * threads))


@pytest.mark.parametrize("threads", [1.0, 16.0])
def test_threads_beside_the_one_that_trains_are_counted(
    monkeypatch: pytest.MonkeyPatch, threads: float
) -> None:
    clocks, counted = Clocks(monkeypatch, loading, threads), Loading()
    counted.start()
    for _ in range(3):
        before = counted.look()
        assert before is not None
        clocks.ns += 80 * MS
        counted.add(before, 100 * MS)
    cpu = counted.stop(KNOWN).cpu
    assert cpu is not None and not counted.on
    assert (cpu.loading_busy, cpu.loading_own) == pytest.approx((0.8 * threads, 0.8))


def test_what_another_thread_takes_is_not_counted() -> None:
    counted, found = Loading(), []
    counted.start()
    other = threading.Thread(target=lambda: found.append(counted.look()))
    other.start()
    other.join()
    assert found == [None] and counted.stop(KNOWN) == KNOWN
    assert counted.stop(Telemetry()) == Telemetry()


class Loader:
    """As much of one as is read and set."""

    def __init__(self) -> None:
        self.worker_init_fn, self.collate_fn = None, sum


@pytest.mark.parametrize("threads", [1.0, 4.0])
@pytest.mark.parametrize("worker", [0, 1])
def test_the_first_worker_shows_whether_its_batch_takes_threads(
    monkeypatch: pytest.MonkeyPatch, threads: float, worker: int
) -> None:
    torch = pytest.importorskip("torch")
    clocks, limited = Clocks(monkeypatch, worker_threads, threads), []
    monkeypatch.setattr(worker_threads, "on_one_thread", lambda then, number: limited.append(number))
    loader: Any = Loader()
    each = OneThreadEach(torch, loader)
    loader.worker_init_fn(worker)
    assert limited == ([] if worker == 0 else [1])
    clocks.ns += 80 * MS
    assert loader.collate_fn([1, 2]) == 3 and loader.collate_fn([2, 2]) == 4
    assert limited == [worker]
    assert each.would_use_more == (threads > 1 and worker == 0)
