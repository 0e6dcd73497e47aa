"""Two ranks on one H200 whose gradients go through gloo, as `findwall run` recorded them."""

from __future__ import annotations

import math

import pytest

import recordings
from captures import FIXTURES
from findwall.model.diagnosis import Diagnosis

RUN = FIXTURES / "runs" / "ddp_one_wire"


def document() -> Diagnosis:
    return recordings.document(RUN)


def test_the_wall_is_the_collective() -> None:
    wall = document().wall
    assert (wall.wall, wall.cause) == ("comms", "exposed-collective")
    assert "2 gloo:all_reduce of 67.1 MB" in wall.sentence
    assert "one GPU per rank" in wall.sentence


def test_its_copies_and_waits_are_nobody_elses() -> None:
    spent = {row.cause: row.ms for row in document().budget}
    assert document().step.ms == pytest.approx(math.fsum(spent.values()), rel=1e-3)
    assert spent["exposed-collective"] > 0.85 * math.fsum(spent.values())
    assert spent.get("host-sync", 0.0) + spent.get("copy-exposed", 0.0) < 0.01 * math.fsum(spent.values())


def test_the_evidence_says_what_is_sent() -> None:
    (row,) = (row for row in document().budget if row.cause == "exposed-collective")
    first = row.evidence[0]
    assert first.op == "gloo:all_reduce"
    assert first.text.startswith("gloo:all_reduce of 67.1 MB: 2 calls, ")
    assert first.text.endswith(" not hidden")


def test_the_timeline_counts_what_runs_on_the_host() -> None:
    timeline = document().timeline
    assert timeline.comm_ms is not None and timeline.span_ms is not None
    assert 0.8 * timeline.span_ms < timeline.comm_ms <= timeline.span_ms
    assert timeline.comm_hidden_share == pytest.approx(0, abs=0.05)


def test_ranks_that_may_share_a_gpu_are_not_counted_as_gpus() -> None:
    assert (document().machine.device, document().machine.count) == ("NVIDIA H200", None)


def test_what_helps_is_about_communication() -> None:
    given = [one.fixes[0] for one in document().prescriptions]
    assert given[0] == "nccl-backend"
    assert {"overlap-comms", "accumulate-gradients", "faster-link"} <= set(given)
    assert not {"remove-sync", "move-io-off-step", "prefetch-batches", "pin-memory"} & set(given)


def test_communication_is_a_phase_of_its_own() -> None:
    longest = max(document().phases, key=lambda phase: phase.ms)
    assert longest.phase == "comms"


@pytest.mark.parametrize("rank", [0, 1])
def test_one_ranks_trace_alone_says_the_same(rank: int) -> None:
    wall = recordings.document(RUN / f"rank{rank}" / "trace.json.gz").wall
    assert wall.cause in ("exposed-collective", None)
    assert wall.cause or ["comms", "exposed-collective"] in (wall.between or [])
