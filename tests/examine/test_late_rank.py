"""Two ranks on a CPU with gloo, of which the second sleeps 20 ms a step, as `findwall run` recorded them."""

from __future__ import annotations

import math

import pytest

import recordings
from captures import FIXTURES
from findwall.model.diagnosis import Diagnosis


def document() -> Diagnosis:
    return recordings.document(FIXTURES / "runs" / "late_rank")


def test_the_late_rank_is_the_wall_and_its_line_is_named() -> None:
    wall = document().wall
    assert (wall.wall, wall.cause) == ("comms", "straggler")
    assert "rank 1 (most often at ddp.py:7)" in wall.sentence


def test_waiting_for_it_is_no_transfer() -> None:
    spent = {row.cause: row.ms for row in document().budget}
    assert document().step.ms == pytest.approx(math.fsum(spent.values()), rel=1e-3)
    assert spent["straggler"] == pytest.approx(20, abs=2.5) and spent["exposed-collective"] < 2


def test_the_evidence_names_ranks_and_lines() -> None:
    (row,) = (row for row in document().budget if row.cause == "straggler")
    assert row.evidence[0].text.startswith("the 2 ranks wait for each other ")
    assert row.evidence[1].line == "ddp.py:7"
    assert document().prescriptions[0].fixes[0] == "balance-ranks"
