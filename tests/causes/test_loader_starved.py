"""The device waits for the next batch."""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from findwall.causes.data import loader_starved
from findwall.facts.facts import Facts
from findwall.fixes import NoUse
from findwall.fixes.loader.loader_workers import FIX
from findwall.model.events import Kind
from findwall.model.machine import CpuUse, Telemetry
from sketch import facts_of, sketch
from speaking import in_words

STEPS = "|         |         |         "
CPU = "ddddddd o ddddddd o ddddddd o "
GPU = "        m         m         m "


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    """The loader is waited for while the device still works."""
    return facts_of(
        sketch(cpu="ddddddd o ddddddd o ddddddd o ", gpu="mmmmmmmmmmMMMMMMMMMMmmmmmmmmmm", steps=STEPS)
    )


def cannot_tell() -> Facts:
    return facts_of(sketch(gpu=GPU, steps=STEPS))


def test_no_workers_asks_for_workers() -> None:
    """A batch takes up to eight times as long as the rest of the step, and a worker twice as long for it."""
    assert "num_workers=" in in_words(loader_starved.CAUSE, fires())
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS), step_ms=10)
    waited = facts.spent_ms("loader-starved")
    assert loader_starved.workers_needed(facts, 0) == ceil(2 * waited / (10 - waited))
    assert loader_starved.workers_needed(facts, 4) == ceil(4 * 10 / (10 - waited))
    assert loader_starved.workers_needed(facts, 32) is None
    few = replace(facts, rank=replace(facts.rank, telemetry=Telemetry(cpu=CpuUse(cores=2))))
    assert loader_starved.workers_needed(few, 1) == 2


def test_a_core_has_no_second_worker() -> None:
    host = {"d": (Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=host), step_ms=10)
    cores = Telemetry(cpu=CpuUse(cores=4))
    for have, helps in ((2, True), (4, False), (8, False)):
        told = FIX.advise(replace(facts, rank=replace(facts.rank, loader_workers=have, telemetry=cores)))
        assert isinstance(told, NoUse) != helps
        assert not helps or ("num_workers=4" in in_words(told) and "the 2 workers" in in_words(told))


def test_slow_workers_are_told_apart() -> None:
    host = {"d": (Kind.ANNOTATION, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")}
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, host=host))
    assert "workers cannot keep up" in in_words(loader_starved.CAUSE, facts)
    one = replace(facts, rank=replace(facts.rank, loader_workers=1))
    assert "because its one worker cannot keep up. Add workers" in in_words(loader_starved.CAUSE, one)
