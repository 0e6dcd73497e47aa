"""A run folder of two ranks of which the second's clocks were held down."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from findwall.causes.comms import straggler
from findwall.examine import examine
from findwall.model.machine import Sampled, Telemetry
from findwall.model.measured_run import Rank, Run
from findwall.model.measurement import Measurement, RunInfo, StepColumns, Trace
from findwall.readers import open_run
from sketch import facts_of, sketch

HOT = Telemetry(throttle={"hw-thermal": 0.6}, sm_clock_mhz=Sampled(1200.0, 1000.0, 1800.0))
COOL = Telemetry(throttle={"sw-power-cap": 1.0}, sm_clock_mhz=Sampled(1790.0, 1780.0, 1800.0))
HELD = "hw-thermal held down the clocks of rank 1 in 60 % of the samples"
STEPS = "|         " * 6
EARLY = sketch("ooeeeeee  " * 6, "mnnnnnnn  " * 6, STEPS, rank=0)
LATE = sketch("ooeeeeee  " * 6, "mmmmmmmn  " * 6, STEPS, rank=1)


def written(folder: Path, number: int, telemetry: Telemetry) -> None:
    count = 10
    steps = StepColumns(
        host_ns=[20_000_000] * count,
        device_ns=[20_000_000] * count,
        loader_ns=[0] * count,
        gc_ns=[0] * count,
        hook_ns=[0] * count,
        batches=[1] * count,
        compiles=[0] * count,
        evaluated=[False] * count,
    )
    rank = Measurement(
        rank=number,
        world_size=2,
        device_kind="gpu",
        steps=steps,
        telemetry=telemetry,
        trace=Trace(why_not="--no-trace"),
    )
    place = folder / f"rank{number}"
    place.mkdir()
    (place / "measurement.json").write_bytes(msgspec.json.encode(rank))


@pytest.mark.parametrize(("telemetry", "shown"), [(HOT, True), (COOL, False)])
def test_its_clocks_are_noted(tmp_path: Path, telemetry: Telemetry, shown: bool) -> None:
    info = RunInfo("train.py", ["train.py"], 2, "2026-01-01", "0.1.0", "3.11")
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(info))
    written(tmp_path, 0, COOL)
    written(tmp_path, 1, telemetry)
    run = open_run([tmp_path])
    assert [rank.number for rank in run.ranks] == [0, 1]
    notes = examine(run).notes
    assert any(note.startswith(HELD) for note in notes) is shown
    assert not any("the clocks of rank 0" in note for note in notes)


def test_waiting_for_it_is_explained_by_its_clocks() -> None:
    cool, hot = facts_of(EARLY, telemetry=COOL).rank, facts_of(LATE, telemetry=HOT).rank
    document = examine(Run("run-folder", ("run",), (cool, hot)))
    assert document.wall.cause == "straggler"
    assert "waits in collectives for rank 1. Its own work takes" in document.wall.sentence
    assert f"Cool it or check its power ({HELD})" in document.wall.sentence
    (row,) = (row for row in document.budget if row.cause == straggler.CAUSE.name)
    assert row.evidence[1].text == HELD
    assert HELD in document.prescriptions[0].how


def test_the_budget_of_the_rank_that_speaks_is_by_its_own_clocks() -> None:
    """Rank 0 waits and speaks; what rank 1's heat costs is in rank 0's waiting, not in its arithmetic."""
    ranks = (Rank(0, EARLY, telemetry=COOL), Rank(1, LATE, telemetry=HOT))
    spent = {row.cause: row.ms for row in examine(Run("run-folder", ("run",), ranks)).budget}
    assert spent["straggler"] == pytest.approx(4 / 5 * 6) and "throttled" not in spent
    alone = {row.cause: row.ms for row in examine(Run("run-folder", ("run",), ranks[1:])).budget}
    assert alone["throttled"] > 1
