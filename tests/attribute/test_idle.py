"""Every gap is somebody's, and only one's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from findwall.attribute.idle import blame_gaps
from findwall.structure.queue import rerun
from sketch import DRAWINGS, Drawing, facts_of, sketch

STEPS = "|         " * 3


def idle(cpu: str, gpu: str) -> dict[str, float]:
    """Idle milliseconds a step by cause."""
    facts = facts_of(sketch(cpu=cpu * 3, gpu=gpu * 3, steps=STEPS))
    gaps = blame_gaps(facts.queue, facts.host, 0.0)
    from findwall.attribute.idle import IDLE_CAUSES

    found = {cause: gaps.total(cause) / facts.steps.count / 1e6 for cause in IDLE_CAUSES}
    return {cause: round(value, 1) for cause, value in found.items() if value > 0.05}


@pytest.mark.parametrize(
    ("cpu", "gpu", "expected"),
    [
        ("ddddd o   ", "      mmmm", {"loader-starved": 5.0, "host-work": 1.0}),
        ("mmmmm o   ", "      mmmm", {"allocator": 5.0, "host-work": 1.0}),
        ("jjjjj o   ", "      mmmm", {"recompilation": 5.0, "host-work": 1.0}),
        ("ggggg o   ", "      mmmm", {"gc-pause": 5.0, "host-work": 1.0}),
        ("      o   ", "      mmmm", {"host-work": 6.0}),
        ("nnnnnno   ", "      mmmm", {"launch-bound": 6.0}),  # ops that launch nothing
        ("o         ", "mmmmmmmmmm", {}),
    ],
)
def test_a_gap_goes_to_what_the_host_did(cpu: str, gpu: str, expected: dict[str, float]) -> None:
    assert idle(cpu, gpu) == expected


def test_a_drained_queue_is_the_synchronizes_fault() -> None:
    """The gaps after it look like slow launching, but would not be there without it."""
    found = idle("osssnono  ", "mmmm  m m ")
    assert found["host-sync"] > found.get("launch-bound", 0.0)


def test_other_threads_delay_nobody() -> None:
    """The loader's own thread is not the one that launches."""
    from dataclasses import replace

    timeline = sketch(cpu="dddddd    " * 3 + "\n" + "      o   " * 3, gpu="      mmmm" * 3, steps=STEPS)
    loader = [name.startswith("enumerate") for name in timeline.names]
    thread = timeline.events.thread.copy()
    thread[[loader[int(name)] for name in timeline.events.name]] = 99
    facts = facts_of(replace(timeline, events=replace(timeline.events, thread=thread)))
    assert facts.spent_ms("loader-starved") == 0
    assert facts.spent_ms("host-work") == pytest.approx(6, abs=0.01)


@settings(max_examples=60, deadline=None)
@given(DRAWINGS)
def test_the_blame_sums_to_the_idle_time(drawing: Drawing) -> None:
    facts = drawing.facts
    gaps = blame_gaps(facts.queue, facts.host, 1000.0)
    assert (gaps.blame >= -1e-6).all()
    assert gaps.blame.sum() == pytest.approx(rerun(facts.queue, facts.host, 1000.0).gap.sum(), abs=1)
