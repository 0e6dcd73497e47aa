"""Where more idle time is of unknown cause than anything known gives back, no wall is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from findwall.examine import examine
from findwall.examine.traced_document import diagnose_device
from findwall.model.measured_run import StepTimes
from findwall.readers import open_run
from findwall.report.words import spoken
from sketch import facts_of, sketch


def test_steps_longer_than_the_traced_ones_are_asked_for() -> None:
    facts = facts_of(sketch(cpu="o." * 30, gpu="k." * 30, steps=("|" + " " * 19) * 3, us=20), step_ms=3.0)
    document = examine(facts.run, step_ms=3.0)
    assert document.wall.cause is None
    assert "its steps are shorter than the timed ones" in document.wall.sentence


def test_who_ran_findwall_is_not_sent_to_do_it_again() -> None:
    timed = StepTimes((0.003,) * 20, "measured")
    timeline = sketch(cpu="o." * 30, gpu="k." * 30, steps=("|" + " " * 19) * 3, us=20)
    facts = facts_of(timeline, step_times=timed)
    sentence = spoken(diagnose_device(facts.run, [facts]).wall.claim)
    assert "its steps are shorter than the timed ones" in sentence
    assert sentence.endswith("Trace more of them (`findwall run --trace-steps 20`).")


def test_a_trace_of_start_up_is_told_so(shared: Path) -> None:
    document = examine(open_run([shared / "traces" / "a100_alexnet_cuda_sync.json.gz"]))
    assert document.wall.cause is None
    assert "recorded during start-up" in document.wall.sentence


@pytest.mark.parametrize("name", ["a100_alexnet_cuda_sync", "recsys_rank0_of_128"])
def test_a_run_that_was_traced_too_early_is_told_how_to_trace_it_later(shared: Path, name: str) -> None:
    run = open_run([shared / "traces" / f"{name}.json.gz"])
    read = examine(run)
    assert "let `findwall run` do it" in read.wall.sentence
    assert read.step.ms is not None
    timed = StepTimes((read.step.ms / 1e3,) * 10, "measured")
    measured = examine(replace(run, ranks=(replace(run.first, step_times=timed), *run.ranks[1:])))
    assert measured.wall.cause is None
    assert measured.wall.sentence.endswith("(`findwall run --wait STEPS`).")
