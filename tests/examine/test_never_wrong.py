"""The laws, on jobs drawn at random: the unknown weighs, a roof is near, nothing contradicts a figure.

FINDWALL_FUZZ_EXAMPLES sets how many jobs of each kind are drawn (by default 100).
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from contradictions import Known, contradictions
from drawn_jobs import JOBS, Job
from examples import drawn
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import to_json
from findwall.model.machine import Counters, Telemetry
from findwall.model.measured_run import Rank, Run, StepTimes

MANY = drawn(100)


@MANY
@given(job=JOBS)
def test_no_document_contradicts_itself(job: Job) -> None:
    try:
        document = examine(job.run, step_ms=job.step_ms)
    except InputError:  # a step that cannot hold its own work
        return
    said = json.loads(to_json(document))
    assert contradictions(said, job.known) == []
    assert said["quality"]["checks_failed"] == {}, said["notes"]


SHARES = st.one_of(st.none(), st.floats(0.0, 100.0))


@st.composite
def timed_jobs(draw: st.DrawFn) -> Run:
    """Jobs of which only step times, waits and counters are known."""
    seconds = tuple(draw(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=20)))
    mean = sum(seconds) / len(seconds)
    waits = draw(st.tuples(*[st.one_of(st.none(), st.floats(0.0, 1.0))] * 2))
    loader, collector = (None if share is None else share * mean for share in waits)
    gpm = draw(st.one_of(st.none(), st.builds(Counters, SHARES, SHARES, SHARES, SHARES, SHARES, SHARES)))
    rank = Rank(
        step_times=StepTimes(seconds, "measured", loader_s=loader, gc_s=collector),
        telemetry=Telemetry(gpm=gpm),
        device_kind=draw(st.sampled_from(["gpu", "cpu"])),
        compiles=draw(st.integers(0, 2)),
    )
    return Run("run-folder", ("drawn",), (rank,))


@MANY
@given(run=timed_jobs())
def test_nor_does_one_of_a_job_without_a_trace(run: Run) -> None:
    document = examine(run)
    said = json.loads(to_json(document))
    assert contradictions(said, Known(maker="")) == []
    assert said["quality"]["checks_failed"] == {}, said["notes"]
