"""Fixes switched on and off in one process: blocks of steps without and with each, in the order A B B A.

It judges time alone, and only of what can be switched while a job runs; whoever reads it decides what is
worth a proof in fresh processes. What a switch itself takes, compiling most of all, lies between two blocks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator
from math import ceil
from statistics import mean, median
from time import perf_counter_ns
from typing import Any

from findwall.agent.engine import Engine
from findwall.agent.stages.control import finish
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.timing.warmup import WINDOW
from findwall.apply.job_state import JobState
from findwall.apply.live_fixes import LiveFix
from findwall.apply.registry import COMPARES, REGISTRY, Call, Put
from findwall.machine import torch_device as machine
from findwall.model.arms import ScreenedFix, Screening
from findwall.model.measurement import ENDED as ENDED_WELL
from findwall.units import NS_PER_MS, NS_PER_S

# All chosen by hand.
BLOCK_NS, LONGEST_BLOCK = NS_PER_S // 10, 100  # of steps: long enough to be timed, short beside a drift
FEWEST_PAIRS, MOST_PAIRS = 3, 10  # of two blocks without a fix and two with it
ENOUGH_NS = 4 * NS_PER_S  # of such blocks: what is not seen by then is for fresh processes to show
DROPPED, MOST_DROPPED = 3, 40  # steps after a switch: what was queued or fetched before it is gone by then
BESIDE = 3  # blocks without the fix, before it is first made and after it is first taken back
NOT_AGAIN_SHARE = 0.05  # of a step: by so much those differ where the job is no longer what it was
TRIES = 3  # of a block that an evaluation falls into, and of the look at the job after a fix

BROKEN_LOSS = "its loss was not finite"
NOT_AGAIN = "the job was not as before once it was taken back"
ENDED = "the job ended first"
COMPILED = "the job runs code that it compiled or captured itself"
IN_BACKWARD = "its steps end inside backward"
NO_ROOM = "the host has no room to keep what its steps change"

Blocks = Generator[int, None, float]  # yields how many steps are to pass; gives the mean of one in ms
Steps = Generator[int, None, None]


class ScreeningStage:
    """Its plan is a generator, which goes on after as many steps as it asked for."""

    name = "screening"

    def __init__(self, engine: Engine, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._engine, self._clock = engine, clock
        self._losses = _Losses(engine.torch)
        lately = engine.timer.recent(WINDOW) if engine.timer is not None else []
        step_ns = median(lately) if lately else BLOCK_NS
        self._block_steps = max(1, min(LONGEST_BLOCK, ceil(BLOCK_NS / max(step_ns, 1))))
        self._dropped = max(DROPPED, min(engine.prefetched, MOST_DROPPED))
        self._screened: list[ScreenedFix] = []
        self._now: _Variant | None = None
        self._plan = self._all()
        self._left = 1
        self._why_not = ""

    def step(self, engine: Engine, now: int) -> None:
        passed, _ = engine.take_passed()
        self._left -= 1 + len(passed)
        if self._left <= 0:
            self._left = next(self._plan, 0)
        if self._left:
            engine.let_pass(self._left - 1)
        else:
            self.close(engine)
            finish(engine)

    def close(self, engine: Engine) -> None:
        """Also where the job ends under it."""
        if self._now is not None:
            if self._now.fix.is_on and engine.record.job_ended not in ("", ENDED_WELL):
                self._now.trouble = f"the job failed with it: {engine.record.job_ended}"
            self._now.fix.switch_off()
            self._screened.append(self._now.told())
            self._now, self._why_not = None, self._why_not or ENDED
        self._plan.close()
        self._losses.stop()
        engine.record.screening = Screening(self._screened, self._why_not)

    def _all(self) -> Steps:
        self._why_not = _why_not(self._engine)
        if self._why_not:
            return
        state = JobState(self._engine.torch)
        for name, fix in self._engine.live.made_in(self._engine.torch):
            self._now = this = _Variant(name, fix, self._clock)
            self._why_not = ENDED
            yield from self._screen(this, state)
            self._screened.append(this.told())
            self._now, self._why_not = None, ""
            if this.trouble == NOT_AGAIN:
                self._why_not = f"{NOT_AGAIN} ({name})"
                return

    def _screen(self, this: _Variant, state: JobState) -> Steps:
        before = yield from self._blocks(BESIDE)
        yield from self._pair(this)
        if not this.trouble:
            yield from self._look_again(this, before)
        while not (this.trouble or this.is_enough):
            yield from self._pair(this)
        state.put_back()
        yield self._dropped

    def _look_again(self, this: _Variant, before: list[float]) -> Steps:
        """Other processes come and go: what is lost is lost every time."""
        for _ in range(TRIES):
            after = yield from self._blocks(BESIDE)
            if is_as_before(before, after):
                return
        this.trouble = NOT_AGAIN

    def _pair(self, this: _Variant) -> Steps:
        """A B B A."""
        plain = yield from self._blocks(1)
        self._edge()
        this.fix.switch_on()
        yield self._dropped
        this.fix.end_looks()
        made = yield from self._blocks(2)
        is_finite = self._losses.are_finite()
        if not this.fix.switch_off():
            this.trouble = NOT_AGAIN
        elif not is_finite:
            this.trouble = BROKEN_LOSS
        elif not this.fix.told.took_effect:
            this.trouble = this.fix.told.trouble or "nothing shows that it took effect"
        yield self._dropped
        plain += yield from self._blocks(1)
        this.add(mean(plain), mean(made))

    def _blocks(self, many: int) -> Generator[int, None, list[float]]:
        found = []
        for _ in range(many):
            found.append((yield from self._block()))
        return found

    def _block(self) -> Blocks:
        """From edge to edge; one that an evaluation falls into says nothing of a step."""
        taken = 0
        for _ in range(TRIES):
            self._engine.gauge.reset()
            begun = self._edge()
            yield self._block_steps
            taken = self._edge() - begun
            if not self._engine.gauge.evaluated:
                break
        return taken / self._block_steps / NS_PER_MS

    def _edge(self) -> int:
        """Nothing of the steps before is still to be done on the device."""
        if self._engine.clock is not None:
            machine.synchronize(self._engine.torch)
        return self._clock()


class _Variant:
    """One fix, and the blocks that were timed of it."""

    def __init__(self, name: str, fix: LiveFix, clock: Callable[[], int]) -> None:
        self.name, self.fix, self._clock = name, fix, clock
        self.trouble = ""
        self._pairs: list[tuple[float, float]] = []
        self._ns = 0.0
        self._begun = clock()

    @property
    def is_enough(self) -> bool:
        """With slow steps few blocks, with fast ones many."""
        many = len(self._pairs)
        return many >= MOST_PAIRS or (many >= FEWEST_PAIRS and self._ns >= ENOUGH_NS)

    def add(self, plain_ms: float, made_ms: float) -> None:
        self._pairs.append((plain_ms, made_ms))
        self._ns += 2 * (plain_ms + made_ms) * NS_PER_MS

    def told(self) -> ScreenedFix:
        seen = self.fix.told
        seconds = (self._clock() - self._begun) / NS_PER_S
        trouble = self.trouble or seen.trouble
        return ScreenedFix(self.name, self._pairs, seen.seen, trouble, seconds)


def is_as_before(before: list[float], after: list[float]) -> bool:
    """A job without a fix must be what it was: blocks before and after that lie wholly apart, and by more
    than either vary by themselves, are of two jobs."""
    less, more = sorted((before, after), key=median)
    varies = max(max(one) / min(one) for one in (less, more))
    apart = median(more) / median(less)
    return min(more) <= max(less) or apart <= max(1 + NOT_AGAIN_SHARE, varies)


class _Losses:
    """The root of the last backward pass, read only at the edge of a block."""

    def __init__(self, torch: Any) -> None:
        self._last: Any = None
        self._torch = torch
        self._put: Put = REGISTRY.wrap(
            "screened losses", torch.autograd, "backward", self._watched, past_trace=COMPARES
        )

    def _watched(self, original: Call) -> Call:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(tensors, self._torch.Tensor) and tensors.numel() == 1:
                self._last = tensors.detach()
            original(tensors, *args, **kwargs)

        return backward

    def are_finite(self) -> bool:
        last, self._last = self._last, None
        return last is None or math.isfinite(float(last))

    def stop(self) -> None:
        self._put.undo()


def _why_not(engine: Engine) -> str:
    torch = engine.torch
    if machine.inside_backward(torch):
        return IN_BACKWARD
    replays = engine.finder.source is StepEnd.REPLAY or engine.finder.optimizer_captured
    if replays or machine.compiled_graphs():
        return COMPILED
    return "" if JobState.has_room(torch) else NO_ROOM
