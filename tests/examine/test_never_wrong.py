"""The laws, on jobs drawn at random: the unknown weighs, a roof is near, nothing contradicts a figure."""

from __future__ import annotations

import json
import os

from hypothesis import HealthCheck, given, settings

from contradictions import contradictions
from drawn_jobs import JOBS, Job
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import to_json

EXAMPLES = int(os.environ.get("FINDWALL_FUZZ_EXAMPLES", "1500"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FINDWALL_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(job=JOBS)
def test_no_document_contradicts_itself(job: Job) -> None:
    try:
        document = examine(job.run, step_ms=job.step_ms)
    except InputError:  # a step that cannot hold its own work
        return
    said = json.loads(to_json(document))
    assert contradictions(said, job.known) == []
    assert said["quality"]["checks_failed"] == {}, said["notes"]
