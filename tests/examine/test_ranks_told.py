"""What sharding would send, and how a job scales from fewer ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from findwall.api import look
from findwall.examine.examination import look_into
from findwall.examine.ranks_told import scaled
from findwall.model.diagnosis import Diagnosis
from findwall.model.measured_run import Run
from findwall.report.texts.ranks_text import facts
from fixes import drawn

FIXTURE = Path(__file__).parents[1] / "fixtures" / "eager_training.json.gz"


def of_ranks(run: Run, world: int, samples: float | None = None) -> Run:
    """The same run, one rank of so many."""
    timeline = run.timelines[0]
    told = replace(timeline, header=replace(timeline.header, rank=0, world_size=world))
    first = replace(run.first, timeline=told)
    return replace(run, ranks=(first,), samples_per_step=samples, sample_unit="samples")


def both(few: Run, many: Run, few_ms: float, many_ms: float) -> Diagnosis:
    found = look_into(many, step_ms=many_ms).diagnosis
    scaled(found, many, look_into(few, step_ms=few_ms).diagnosis, few)
    return found


def test_a_step_that_grows_with_the_ranks_is_what_scaling_loses() -> None:
    run, _ = look(FIXTURE)
    found = both(of_ranks(run, 1), of_ranks(run, 8), 40.0, 50.0)
    assert found.ranks is not None and found.ranks.scaling is not None
    told = found.ranks.scaling
    assert (told.baseline_ranks, told.ranks, told.basis) == (1, 8, "step")
    assert told.efficiency == pytest.approx(0.8)
    assert "80 %" in dict(facts(found.ranks))["scaling"]
    assert "the same work" in dict(facts(found.ranks))["scaling"]  # nobody counted it


def test_samples_count_more_than_steps() -> None:
    run, _ = look(FIXTURE)
    found = both(of_ranks(run, 1, 32), of_ranks(run, 8, 16), 40.0, 25.0)
    assert found.ranks is not None and found.ranks.scaling is not None
    assert found.ranks.scaling.basis == "throughput"
    assert found.ranks.scaling.efficiency == pytest.approx((16 / 25) / (32 / 40))


def test_a_baseline_of_as_many_ranks_says_nothing() -> None:
    run, _ = look(FIXTURE)
    found = both(of_ranks(run, 8), of_ranks(run, 8), 40.0, 50.0)
    assert found.ranks is None or found.ranks.scaling is None
    assert any("it must have fewer" in note for note in found.notes)
    assert len(found.notes) == len(found.remarks)


def test_what_sharding_would_send_is_in_the_document() -> None:
    drawn_run = drawn.searching().run
    found = look_into(drawn_run).diagnosis
    assert found.ranks is not None
    assert [(one.stage, one.sent_bytes) for one in found.ranks.sharding] == [
        (0, 8e6),
        (1, 8e6),
        (2, 8e6),
        (3, 12e6),
    ]
