"""Where more idle time is of unknown cause than anything known gives back, no wall is named."""

from __future__ import annotations

from pathlib import Path

from findwall.examine import examine
from findwall.readers import open_run
from sketch import facts_of, sketch


def test_steps_longer_than_the_traced_ones_are_asked_for() -> None:
    facts = facts_of(sketch(cpu="o." * 30, gpu="k." * 30, steps=("|" + " " * 19) * 3, us=20), step_ms=3.0)
    document = examine(facts.run, step_ms=3.0)
    assert document.wall.cause is None
    assert "its steps are shorter than the timed ones" in document.wall.sentence


def test_a_trace_of_start_up_is_told_so(shared: Path) -> None:
    document = examine(open_run([shared / "traces" / "a100_alexnet_cuda_sync.json.gz"]))
    assert document.wall.cause is None
    assert "recorded during start-up" in document.wall.sentence
