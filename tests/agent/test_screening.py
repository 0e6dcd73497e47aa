"""Fixes switched on and off while a job runs: in which order, what is dropped, and what ends one early."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent.engine import Engine
from findwall.agent.stages import switched_blocks
from findwall.agent.stages.switched_blocks import (
    BROKEN_LOSS,
    COMPILED,
    DROPPED,
    ENDED,
    FEWEST_PAIRS,
    NOT_AGAIN,
    ScreeningStage,
    is_as_before,
)
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.apply import job_state
from findwall.apply.applying import Effect
from findwall.apply.job_state import JobState, SeenJob
from findwall.apply.live_fixes import LiveFix, LiveFixes
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.fixes import all_fixes
from findwall.model.arms import Screening

torch = pytest.importorskip("torch")
STEP_NS = 200_000_000  # so that a block is one step


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[SeenJob]:
    """A process of its own, as far as these can tell; all that was put is gone after it."""
    monkeypatch.setattr(job_state, "_of_torch", {})
    before = REGISTRY.puts
    yield job_state.seen_job(torch)
    for one in reversed([one for one in REGISTRY.puts if one not in before]):
        one.undo()


class Pretended:
    """A job whose steps take a tenth less while `made` holds; `broken`: with it its loss is not finite;
    `leaves`: it is not what it was afterwards."""

    def __init__(self, broken: bool = False, leaves: bool = False, seen: str = "yes") -> None:
        self.made, self.was_made, self.broken, self.leaves = False, False, broken, leaves
        self.seen, self.now, self.shown = seen, 0, ""
        self.passed: list[int] = []
        self.engine = SimpleNamespace(
            torch=torch,
            timer=SimpleNamespace(recent=lambda _: [STEP_NS]),
            prefetched=0,
            clock=None,
            finder=SimpleNamespace(source=StepEnd.OPTIMIZER, optimizer_captured=False),
            gauge=SimpleNamespace(reset=lambda: None, evaluated=False),
            record=SimpleNamespace(screening=None, job_ended=""),
            live=LiveFixes({"a": self.make}),
            take_passed=lambda: ([], 0),
            let_pass=lambda _: None,
        )

    def make(self, _torch: Any, effect: Effect) -> None:
        self.made = self.was_made = True
        if self.seen:
            effect.saw(self.seen)

        def take_back() -> None:
            self.made = False

        REGISTRY.hold("a", "the job", take_back, past_end=APPLIED)

    def run(self, monkeypatch: pytest.MonkeyPatch, steps: int = 10_000) -> Screening:
        ended: list[bool] = []
        monkeypatch.setattr(switched_blocks, "finish", lambda _: ended.append(True))
        stage = ScreeningStage(self.engine, lambda: self.now)  # type: ignore[arg-type]
        engine: Engine = self.engine  # type: ignore[assignment]
        for _ in range(steps):
            self.shown += "B" if self.made else "A"
            slow = self.leaves and self.was_made
            self.now += STEP_NS * 9 // 10 if self.made else STEP_NS * (3 if slow else 2) // 2
            if self.broken:
                loss = torch.ones((), requires_grad=True) * (float("nan") if self.made else 1.0)
                loss.backward()
            stage.step(engine, self.now)
            if ended:
                break
        else:
            stage.close(engine)
        found = self.engine.record.screening
        assert isinstance(found, Screening) and not self.made
        return found


def test_blocks_come_in_turn_and_what_follows_a_switch_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Pretended()
    (found,) = job.run(monkeypatch).fixes
    pair, back = "A" + "B" * (DROPPED + 2) + "A" * DROPPED + "A", "AAA"
    assert job.shown.startswith("A" + "AAA" + pair + back + pair + pair)
    assert len(found.pairs) >= FEWEST_PAIRS and not found.trouble and found.seen == "yes"
    assert all(plain / made == pytest.approx(10 / 9) for plain, made in found.pairs)


def test_a_loss_that_is_not_finite_ends_its_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = Pretended(broken=True).run(monkeypatch).fixes
    assert found.trouble == BROKEN_LOSS and len(found.pairs) == 1


def test_what_does_not_take_effect_is_not_timed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = Pretended(seen="").run(monkeypatch).fixes
    assert "took effect" in found.trouble and not found.seen and len(found.pairs) == 1


def test_a_job_that_is_not_what_it_was_ends_the_screening(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Pretended(leaves=True)
    job.engine.live = LiveFixes({"a": job.make, "b": job.make})
    told = job.run(monkeypatch)
    assert [one.name for one in told.fixes] == ["a"] and told.fixes[0].trouble == NOT_AGAIN
    assert told.why_not.startswith(NOT_AGAIN)


def test_what_cannot_be_taken_back_is_seen_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Pretended()

    def stays(_torch: Any, effect: Effect) -> None:
        effect.saw("yes")
        REGISTRY.hold("a", "the job", lambda: False, past_end=APPLIED)

    job.engine.live = LiveFixes({"a": stays})
    assert job.run(monkeypatch).fixes[0].trouble == NOT_AGAIN


def test_a_job_that_ends_meanwhile_keeps_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Pretended().run(monkeypatch, steps=30)
    assert told.why_not == ENDED and len(told.fixes) == 1 and told.fixes[0].pairs


def test_code_that_the_job_compiled_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Pretended()
    job.engine.finder.source = StepEnd.REPLAY
    assert job.run(monkeypatch) == Screening(why_not=COMPILED)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ([10, 11, 12], [12, 13, 14], True),
        ([10, 11, 12], [13, 14, 15], False),
        ([10, 11, 14], [15, 14.5, 16], True),  # by no more than they vary
        ([10, 10, 10], [10.1] * 3, True),
    ],
)
def test_when_a_job_is_what_it_was(before: list[float], after: list[float], same: bool) -> None:
    assert is_as_before(before, after) == is_as_before(after, before) == same


class Trains:
    def __init__(self, **how: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **how)

    def step(self) -> float:
        loss = self.model(torch.randn(4, 8)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def test_steps_go_on_from_where_they_were(job: SeenJob) -> None:
    trains = Trains()
    trains.step()
    state = JobState(torch)
    first = [trains.step() for _ in range(3)]
    state.put_back()
    assert [trains.step() for _ in range(3)] == first
    assert len(job.optimizers) == 1 and JobState.has_room(torch)


def test_a_state_that_was_not_there_is_gone_again() -> None:
    trains = Trains()
    trains.model(torch.zeros(1, 8))
    state = JobState(torch)
    trains.step()
    state.put_back()
    assert not trains.optimizer.state


LIVE = ("bf16-autocast", "fused-optimizer", "freeze-gc", "more-threads=1")


@pytest.mark.parametrize("words", LIVE)
def test_a_fix_is_made_again_and_again_and_leaves_nothing(words: str) -> None:
    """Twice: what is made once and kept must not keep the second from taking effect."""
    trains = Trains()
    for _ in range(5):
        trains.step()
    name, _, number = words.partition("=")
    make = all_fixes()[name].live
    assert make is not None
    dicts = [set(vars(one)) for one in trains.model.modules()]
    groups = [dict(group) for group in trains.optimizer.param_groups]
    threads, frozen = torch.get_num_threads(), (gc.get_freeze_count(), gc.get_threshold())
    for _ in range(2):
        fix = LiveFix(torch, make, int(number or 0) or None)
        fix.switch_on()
        for _ in range(4):
            trains.step()
        assert fix.is_on and fix.switch_off() and not fix.is_on
        assert fix.told.took_effect or name == "more-threads", fix.told
    assert [set(vars(one)) for one in trains.model.modules()] == dicts
    assert [dict(group) for group in trains.optimizer.param_groups] == groups
    assert (torch.get_num_threads(), (gc.get_freeze_count(), gc.get_threshold())) == (threads, frozen)
    assert not torch.is_autocast_enabled("cpu")


def test_a_fused_step_goes_on_counting() -> None:
    make = all_fixes()["fused-optimizer"].live
    assert make is not None
    trains = Trains()
    fix = LiveFix(torch, make)
    for _ in range(2):
        trains.step()
    counts = [values["step"] for values in trains.optimizer.state.values()]
    fix.switch_on()
    trains.step()
    assert fix.switch_off()
    assert [float(values["step"]) for values in trains.optimizer.state.values()] == [3.0] * len(counts)
    assert all(
        values["step"] is one for values, one in zip(trains.optimizer.state.values(), counts, strict=True)
    )


def test_a_fix_that_needs_what_is_fixed_at_a_start_is_not_switched() -> None:
    fixes = all_fixes()
    at_start = ("pin-memory", "loader-workers", "channels-last", "reduce-overhead", "omp-threads")
    assert not any(fixes[name].live for name in at_start)
    assert all(fix.trial is not None for fix in fixes.values() if fix.live is not None)
