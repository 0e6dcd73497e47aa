"""A job that keeps something of every step until its memory ends: how that is seen, and what keeps it."""

from __future__ import annotations

import sys
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

import jobs as running
from fake_cuda import FakeCuda
from findwall.agent.allocations import kept_tensors
from findwall.agent.allocations.failed_requests import failed_request
from findwall.agent.allocations.failure_claim import failure_claim
from findwall.agent.allocations.growth_at_failure import AtFailure, growth_until
from findwall.agent.allocations.kept_tensors import Growth, Kept, holder
from findwall.agent.allocations.memory_totals import PERIOD_NS, Totals, nodes_made
from findwall.agent.allocations.state_in_making import full_state
from findwall.model.answers.memory_answer import FailureGrowth, MemoryKindRow, OutOfMemory
from findwall.model.memory_history import HOST
from findwall.report.words import spoken

torch = pytest.importorskip("torch")
MIB, GIB = 1 << 20, 1 << 30
EARLY = (2, 4, 8, 16, 32)


# -- what was seen -----------------------------------------------------------------------------------------


def test_the_first_steps_are_looked_at_whatever_the_time() -> None:
    cuda, totals = FakeCuda(), Totals()
    for step in range(1, 100):
        cuda.stats = {"allocated_bytes.all.current": step * GIB}
        totals.look(cuda.torch, 0, step, step * PERIOD_NS // 1000)
    assert totals.columns.step == [1]
    assert totals.looks(0) == [(step, step * GIB) for step in (1, *EARLY, 64)] and totals.looks(1) == []


def test_steps_that_nobody_saw_are_not_made_up_for() -> None:
    cuda, totals = FakeCuda(), Totals()
    for step in (1, 5, 6, 7, 40, 41, 70):
        totals.look(cuda.torch, 0, step, 1)
    assert [step for step, _ in totals.looks(0)] == [1, 5, 40, 70] and cuda.asked == 4


def at_end(step: int = 44, held: float = 137, asked: float = 2.8, left: float = 1.9) -> AtFailure:
    return AtFailure(step, held * GIB, 0.0, asked * GIB, left * GIB)


def looked(*held_gib: float, steps: tuple[int, ...] = EARLY) -> list[tuple[int, int]]:
    return [(step, int(held * GIB)) for step, held in zip(steps, held_gib, strict=False)]


def test_steady_growth_is_told_by_the_step() -> None:
    found = growth_until(looked(*(3 + 2.8 * step for step in EARLY)), at_end())
    assert found is not None and (found.first, found.last) == (2, 32)
    assert found.bytes_per_step / GIB == pytest.approx(2.8) and found.grown / GIB == pytest.approx(2.8 * 42)


def test_it_may_begin_late() -> None:
    found = growth_until(
        looked(5, 5, 5, 5, 45, 85, 125, steps=(2, 4, 8, 100, 110, 120, 130)), at_end(step=132)
    )
    assert found is not None and (found.first, found.last) == (100, 130)


@pytest.mark.parametrize(
    ("looks", "failure"),
    [
        pytest.param(looked(5, 5, 5, 5, 5), at_end(), id="flat"),
        pytest.param(looked(3, 100), at_end(5), id="two looks"),
        pytest.param(looked(3, 40, 80, 80, 80), at_end(), id="a cache that filled"),
        pytest.param(looked(3, 100, 101, 101.5, 101.5), at_end(), id="state that came late"),
        pytest.param(looked(3, 9, 2, 14, 5), at_end(), id="changing batches"),
        pytest.param(looked(3, 3.4, 4.2, 5.8, 9), at_end(), id="much less than what was held"),
        pytest.param(looked(3, 8.6, 19.8, 42.2, 87), at_end(asked=200), id="more than it takes away"),
        pytest.param(looked(10, 50, steps=(0, 1)), at_end(), id="before the second step"),
        pytest.param([], at_end(), id="nothing"),
    ],
)
def test_what_else_grows_for_a_while_is_none(looks: list[tuple[int, int]], failure: AtFailure) -> None:
    assert growth_until(looks, failure) is None


def test_what_is_mostly_model_is_no_growth() -> None:
    looks = looked(100, 101, 103, 107, 115)
    assert growth_until(looks, AtFailure(40, 120 * GIB, 80.0 * GIB, GIB, 0)) is None
    assert growth_until(looks, AtFailure(40, 120 * GIB, 95.0 * GIB, GIB, 0)) is not None


# -- who keeps it ------------------------------------------------------------------------------------------


class Trainer:
    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.losses: list[Any] = []
        self.asked = 0

    @property
    def never(self) -> Any:
        self.asked += 1
        raise AssertionError

    def step(self) -> Any:
        return self.model(torch.randn(2, 4)).square().mean()


def caught(job: Any) -> BaseException:
    with pytest.raises(RuntimeError) as raised:
        job()
    return raised.value


def kept_by(job: Any, nbytes: float = GIB) -> Kept | None:
    before = nodes_made(torch)
    error = caught(job)
    return holder(error, torch, HOST, Growth(nbytes, nodes_made(torch) - before))


def test_a_list_of_losses_is_named_with_its_function() -> None:
    def main() -> None:
        trainer = Trainer()
        losses, last, numbers = [], deque(maxlen=9), []  # type: ignore[var-annotated]
        for _ in range(20):
            losses.append(trainer.step())
            last.append(losses[-1])
            numbers.append(losses[-1].item())
        hidden = [trainer.step() for _ in range(9)]
        raise RuntimeError(len(hidden))

    found = kept_by(main)
    assert found is not None and (found.name, found.function) == ("losses", "main")
    assert (found.tensors, found.graphs) == (20, 20)


def test_an_attribute_is_named_and_no_property_is_asked() -> None:
    trainer = Trainer()

    def step(mine: Trainer) -> None:
        for _ in range(12):
            mine.losses.append({"loss": mine.step(), "step": 1})
        raise RuntimeError

    found = kept_by(lambda: step(trainer))
    assert found is not None and found.name.endswith(".losses") and found.tensors == 12
    assert trainer.asked == 0


def test_what_is_as_large_as_what_grew_is_named_without_graphs() -> None:
    def main() -> None:
        features = {at: torch.zeros(1024) for at in range(10)}
        small = [torch.zeros(1) for _ in range(10)]
        raise RuntimeError(len(features) + len(small))

    found = kept_by(main, 40_000)
    assert found is not None and (found.name, found.graphs, found.nbytes) == ("features", 0, 40_960)
    assert kept_by(main, 400_000) is None and kept_by(main, 4_000) is None


def test_a_model_and_its_optimizer_keep_nothing_of_steps() -> None:
    def main() -> None:
        model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(10)])
        weights = list(model.parameters())
        optimizer = torch.optim.AdamW(weights)
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        raise RuntimeError

    assert kept_by(main, sum(2 * 4 * 72 for _ in range(10))) is None


def test_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def main() -> None:
        trainer = Trainer()
        losses = [trainer.step() for _ in range(20)]
        raise RuntimeError(len(losses))

    assert kept_by(main) is not None
    monkeypatch.setattr(kept_tensors, "MOST_LOOKED_AT", 3)
    assert kept_by(main) is None
    monkeypatch.setattr(kept_tensors, "MOST_LOOKED_AT", 200_000)
    monkeypatch.setattr(kept_tensors, "LASTS_AT_MOST_NS", -1)
    monkeypatch.setattr(kept_tensors, "LOOKS_AT_CLOCK", 1)
    assert kept_by(main) is None


def test_a_frame_that_runs_on_holds_nothing_for_longer() -> None:
    import weakref

    batch = torch.zeros(8)
    alive = weakref.ref(batch)
    try:
        raise RuntimeError
    except RuntimeError as error:
        holder(error, torch, HOST, Growth(GIB, 9))
    del batch
    assert alive() is None


def test_what_the_job_took_of_its_own_frame_stays() -> None:
    size = 3
    mine = locals()
    try:
        raise RuntimeError
    except RuntimeError as error:
        holder(error, torch, HOST, Growth(GIB, 9))
    assert mine["size"] == size == 3 and sys.getrefcount(mine) > 1


# -- what is said ------------------------------------------------------------------------------------------


def oom(**changes: Any) -> OutOfMemory:
    kinds = [MemoryKindRow("parameters", 1.0, 9), MemoryKindRow("unknown", 136.0, 0)]
    found = OutOfMemory(2.8, 1.9, 0.001, None, "growth", "backward", "leak.py:50", 0, total_gib=139.8)
    found.held_gib, found.kinds = 137.0, kinds
    found.growth = FailureGrowth(2.8, 2, 32, "spread", "main", 44, 44)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_growth_is_said_with_what_keeps_it() -> None:
    words = spoken(failure_claim(oom()))
    assert (
        "grew by about 2.8 GiB per step, from step 2 to step 32: the job keeps something of every step. "
        "`spread` in main holds 44 tensors with their graphs. Append `x.item()` or `x.detach()`" in words
    )
    assert "Halve" not in words and "Only" not in words
    bare = spoken(failure_claim(oom(growth=FailureGrowth(2.8, 2, 32))))
    assert "of every step. Look for lists" in bare
    there = spoken(failure_claim(oom(growth=FailureGrowth(2.8, 2, 32, "self.out", None, 44))))
    assert "`self.out` holds 44 tensors. Append `x.item()` or `x.cpu()`" in there


def test_growth_up_to_a_limit_is_growth_and_names_the_limit() -> None:
    words = spoken(failure_claim(oom(limit_gib=35.0, device_free_gib=90.0)))
    assert "the limit of this process" in words and "`spread` in main" in words
    assert "memory_fraction" not in words and "x.item()" in words
    full = spoken(failure_claim(oom(limit_gib=35.0)))  # less was free than was asked for
    assert "the limit of this process" not in full


def test_a_device_that_filled_step_by_step_is_told_so() -> None:
    cuda, totals = FakeCuda(), Totals()
    for name in ("nn", "optim", "Tensor", "strided"):
        setattr(cuda.torch, name, getattr(torch, name))
    for step in range(1, 26):
        cuda.stats = {"allocated_bytes.all.current": (2 + 3 * step) * GIB}
        totals.look(cuda.torch, 0, step, step)
    text = (
        "CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 80.00 GiB of "
        "which 1.00 GiB is free. Of the allocated memory 78.00 GiB is allocated by PyTorch, and {cached} GiB "
        "is reserved by PyTorch but unallocated."
    )
    for cached in (0.5, 3):  # nor is it the fragments' fault
        error = RuntimeError(text.format(asked=2, cached=cached))
        found = failed_request(error, cuda.torch, None, totals, 25)
        assert found is not None and found.cause == "growth" and found.growth is not None
        assert (found.growth.gib_per_step, found.growth.first_step) == (3.0, 2)
    found = failed_request(RuntimeError(text.format(asked=90, cached=0)), cuda.torch, None, totals, 25)
    assert found is not None and found.cause == "size" and found.growth is None
    totals.looks = None  # type: ignore[assignment, method-assign]
    found = failed_request(RuntimeError(text.format(asked=2, cached=0)), cuda.torch, None, totals, 25)
    assert found is not None and found.cause == "size"


def test_a_limit_that_was_filled_step_by_step_is_a_leak() -> None:
    cuda, totals = FakeCuda(), Totals()
    for name in ("nn", "optim", "Tensor", "strided"):
        setattr(cuda.torch, name, getattr(torch, name))
    for step in range(1, 13):
        cuda.stats = {"allocated_bytes.all.current": (2 + 3 * step) * GIB}
        totals.look(cuda.torch, 0, step, step)
    text = (
        "CUDA out of memory. Tried to allocate {asked}.00 GiB. GPU 0 has a total capacity of 80.00 GiB of "
        "which 41.00 GiB is free. 40.00 GiB allowed; Of the allocated memory 39.00 GiB is allocated by "
        "PyTorch, and 0.50 GiB is reserved by PyTorch but unallocated."
    )
    causes = {}
    for asked in (2, 38):  # the one would have fitted into what is allowed without what was kept
        found = failed_request(RuntimeError(text.format(asked=asked)), cuda.torch, None, totals, 12)
        assert found is not None and found.limit_gib == 40.0
        causes[asked] = found.cause
    assert causes == {2: "growth", 38: "limit"}


# -- state in the making -----------------------------------------------------------------------------------


def stopped(at: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An AdamW whose first update fails at its so-manieth tensor of state."""
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16, bias=False) for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 16)).sum().backward()
    made, original = [0], torch.zeros_like

    def zeros_like(*args: Any, **options: Any) -> Any:
        made[0] += 1
        if made[0] > at:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        return original(*args, **options)

    monkeypatch.setattr(torch, "zeros_like", zeros_like)
    return SimpleNamespace(model=model, optimizer=optimizer, error=caught(optimizer.step))


def test_the_whole_state_is_told_by_what_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    job = stopped(9, monkeypatch)
    monkeypatch.setattr(
        "findwall.agent.allocations.state_in_making.objects_of", lambda *_, **__: [job.optimizer]
    )
    assert full_state(torch, HOST, 10) == 8 * 2 * 16 * 16 * 4 and full_state(torch, 0, 10) is None
    found = failed_request(job.error, torch, None)
    assert found is not None and found.phase == "optimizer" and found.state_gib == 16384 / GIB
    found.on_host, found.cause = False, "size"
    found.device_free_gib, found.free_gib, found.total_gib = 0.2, 0.0, 139.0
    words = spoken(failure_claim(found))
    assert "was making its state, which takes" in words and "SGD with momentum" in words
    assert "Halve" not in words


@pytest.mark.parametrize("at", [1, 99])
def test_a_first_tensor_or_a_whole_state_tells_nothing(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    if at > 16:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    else:
        optimizer = stopped(at, monkeypatch).optimizer
    monkeypatch.setattr("findwall.agent.allocations.state_in_making.objects_of", lambda *_, **__: [optimizer])
    assert full_state(torch, HOST, 10) is None


def test_in_the_optimizer_nobody_is_told_to_halve_the_batch() -> None:
    found = oom(cause="size", phase="optimizer", growth=None)
    assert "foreach=False" in spoken(failure_claim(found)) and "Halve" not in spoken(failure_claim(found))


# -- a whole job -------------------------------------------------------------------------------------------

LEAKS = """
    class Trainer:
        def __init__(self):
            self.seen = []

        def fit(self):
            for step in range(48):
                x = torch.ones(2 << 20)  # 8 MiB, and as much again for its product
                self.seen.append((x * model[0].weight.sum()).square().mean())
                train(1)
            said = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1048576 bytes."
            raise RuntimeError(said)

    Trainer().fit()
"""


def test_a_job_that_leaks_is_told_what_holds_it(warm_jobs: running.Jobs, training: Any) -> None:
    warm_jobs.write(training(LEAKS))
    plain = warm_jobs.plain_warm("job.py")
    measured = warm_jobs.run(None, options=("--wait", "2", "--steps", "6"))
    assert (measured.code, measured.stdout) == (plain.code, plain.stdout) and plain.code == 1
    assert plain.stderr in measured.stderr
    found = measured.measurement().oom
    assert found is not None and found.cause == "growth" and found.growth is not None
    assert 0.5 * 16 / 1024 < found.growth.gib_per_step < 2 * 16 / 1024
    assert (found.growth.holder, found.growth.function, found.growth.graphs) == ("self.seen", "fit", 48)
    assert "`self.seen` in fit holds 48 tensors with their graphs" in measured.stderr
    assert "Append `x.item()`" in measured.stderr


def test_on_a_host_what_is_kept_is_dropped_not_copied_to_it() -> None:
    growth = FailureGrowth(0.1, 1, 9, "kept", "main", 8, 0)
    assert "`x.cpu()`" in spoken(failure_claim(oom(growth=growth)))
    words = spoken(failure_claim(oom(growth=growth, on_host=True, device=None)))
    assert "Drop what no later step needs" in words and ".cpu()" not in words and ".item()" not in words
