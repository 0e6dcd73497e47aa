"""Run folders of several ranks: read by the summaries that the ranks left, merged, with ranks missing, and
with ranks of which only the steps were timed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

import findwall
from findwall.errors import InputError
from findwall.examine.measured_job import open_job
from findwall.model.answers.ranks_answer import Suspect
from findwall.model.diagnosis import Diagnosis
from findwall.model.measurement import Line, Measurement, RunInfo, StepColumns, Trace
from findwall.ranks.compared_ranks import compare
from findwall.ranks.reduced import rank_in_job
from findwall.readers.rank_summaries import read_summary
from findwall.report.texts import ranks_text
from planted import PLANTED, SCORING

RANKS = 4
STEP_NS = 20_000_000


def measurement(rank: int, world: int = RANKS, step_ns: int = STEP_NS, **fields: object) -> Measurement:
    jitter = [1000 * (at % 7) for at in range(20)]
    steps = StepColumns([step_ns + one for one in jitter], [None] * 20, *[[0] * 20] * 5, [False] * 20)
    line = Line(f"train.py:{rank}", "step", 0.9)
    told = {"phase": "done", "final": True, "device_kind": "gpu", "node": f"node{rank // 2}", **fields}
    return Measurement(rank, world, steps=steps, host_lines=[line], **told)  # type: ignore[arg-type]


def write(folder: Path, *ranks: Measurement, job: str = "job") -> None:
    world = ranks[0].world_size
    info = RunInfo("train.py", ["train.py"], world, "2026-01-01", "0.1.0", "3.11", job=job)
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_bytes(msgspec.json.encode(info))
    for rank in ranks:
        (folder / f"rank{rank.rank}").mkdir(exist_ok=True)
        (folder / f"rank{rank.rank}" / "measurement.json").write_bytes(msgspec.json.encode(rank))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the ranks leave it before they have reduced their traces."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    traced = Trace(file="trace.json", steps=3)
    write(folder, *(measurement(rank, trace=traced) for rank in range(RANKS)))
    for timeline in PLANTED.plant("slow-gpu", RANKS, seed=1, kernels=24).timelines:
        SCORING.write_trace(timeline, folder / f"rank{timeline.header.rank}" / "trace.json.gz")
    return folder


@pytest.fixture(scope="module")
def reduced(plain: Path) -> Path:
    """And after that."""
    folder = plain.with_name("reduced")
    shutil.copytree(plain, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "nice", lambda by: by)
        for rank in range(RANKS):
            rank_in_job.main([str(folder / f"rank{rank}"), str(rank)])
    return folder


@pytest.fixture
def folder(reduced: Path, tmp_path: Path) -> Path:
    shutil.copytree(reduced, tmp_path / "run")
    return tmp_path / "run"


def named(diagnosis: Diagnosis) -> Suspect:
    assert diagnosis.ranks is not None
    return diagnosis.ranks.suspects[0]


def late_rank() -> str:
    return str(PLANTED.fault_of("slow-gpu", RANKS, 1).who[1])


def test_summaries_say_what_the_traces_say(plain: Path, reduced: Path) -> None:
    whole, by_summaries = findwall.read(plain), findwall.read(reduced)
    for found in (whole, by_summaries):
        assert (named(found).named, named(found).name, named(found).why) == (True, late_rank(), "device")
        assert found.source.ranks == RANKS and found.machine.count == RANKS
    assert named(by_summaries).saves_ms == pytest.approx(named(whole).saves_ms, rel=0.01)
    assert named(by_summaries).line == f"train.py:{late_rank()}"
    assert by_summaries.wall == whole.wall and by_summaries.cost["summaries_s"] > 0


def test_nobody_waits_for_longer_than_a_step(folder: Path) -> None:
    """The profiler's own is longer than those that were timed."""
    traced = Trace(file="trace.json", steps=3)
    write(folder, *(measurement(rank, step_ns=2_000_000, trace=traced) for rank in range(RANKS)))
    found = findwall.read(folder)
    assert found.ranks is not None and found.ranks.waits is not None
    assert found.step.ms is not None and 0 < found.ranks.waits.max <= found.step.ms


def test_one_trace_alone_is_read(folder: Path) -> None:
    run = open_job([folder], None, None)
    assert run is not None and len(run.traced) == 1 and len(run.seen) == len(run.ranks) == RANKS
    for rank in run.ranks:
        if rank.timeline is None:
            (folder / f"rank{rank.number}" / "trace.json.gz").write_bytes(b"nobody reads this")
    assert named(findwall.read(folder)).name == late_rank()


def test_a_ranks_own_folder_is_read_by_its_trace(reduced: Path, tmp_path: Path) -> None:
    assert findwall.read(reduced / "rank1").source.ranks == 1
    for rank in range(RANKS):
        shutil.copytree(reduced / f"rank{rank}", tmp_path / f"rank{rank}")
        (tmp_path / f"rank{rank}" / "measurement.json").unlink()
    assert findwall.read(tmp_path).source.ranks == RANKS


def test_a_rank_that_has_no_summary_is_reduced_now(folder: Path) -> None:
    (folder / "rank1" / "summary.fwrank").unlink()
    found = findwall.read(folder)
    assert found.ranks is not None and found.ranks.compared == RANKS


def test_why_a_trace_could_not_be_reduced_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = next(rank for rank in range(RANKS) if str(rank) != late_rank())
    (folder / f"rank{other}" / "trace.json.gz").write_bytes(b"no trace")
    monkeypatch.setattr(os, "nice", lambda by: by)
    rank_in_job.main([str(folder / f"rank{other}"), str(other)])
    found = findwall.read(folder)
    assert found.ranks is not None and found.ranks.compared == RANKS - 1
    assert any(note.startswith(f"rank {other}: ") for note in found.notes)


def test_missing_ranks_are_named(folder: Path) -> None:
    shutil.rmtree(folder / "rank3")
    found = findwall.read(folder)
    assert found.ranks is not None and found.ranks.missing == [3]
    assert f"3 of {RANKS} ranks wrote their measurement, not 3" in found.notes
    assert any("rank 3 is not here" in text for _, text in ranks_text.facts(found.ranks))


def test_folders_of_one_launch_on_several_machines_are_merged(folder: Path, reduced: Path) -> None:
    there = folder.with_name("there")
    there.mkdir()
    shutil.copy(folder / "run.json", there)
    for rank in (2, 3):
        (folder / f"rank{rank}").rename(there / f"rank{rank}")
    merged = findwall.read([folder, there])
    assert merged.source.ranks == RANKS and named(merged).saves_ms == named(findwall.read(reduced)).saves_ms
    assert merged.ranks is not None and merged.ranks.nodes == 2
    with pytest.raises(InputError, match="both rank 2"):
        findwall.read([reduced, there])
    write(there, measurement(2), job="another")
    with pytest.raises(InputError, match="not of one launch"):
        findwall.read([folder, there])


def test_a_rank_that_was_only_timed_is_named_by_that_alone(folder: Path) -> None:
    """The others meet it seldom: its steps are longer, and nobody knows why."""
    for rank in range(RANKS):
        shutil.rmtree(folder / f"rank{rank}")
    traced = Trace(why_not="other ranks are traced in its place", others_are=True)
    ranks = [measurement(rank, 6, trace=traced) for rank in (0, 1, 2, 3, 5)]
    write(folder, *ranks, measurement(4, 6, STEP_NS + 6_000_000, trace=traced))
    write_trace_of_one(folder)
    found = findwall.read(folder)
    slow = named(found)
    assert (slow.name, slow.by, slow.why, slow.line) == ("4", "timing", None, None)
    assert slow.saves_ms == pytest.approx(6.0, rel=0.01) and found.ranks is not None
    assert (found.ranks.timed, found.ranks.missing) == (5, [])
    assert ranks_text.facts(found.ranks)[0][1].startswith("rank 4, slow by timing: its steps take 6.00 ms")
    assert found.wall.cause != "straggler"


def test_a_rank_that_had_no_core_is_not_named(reduced: Path) -> None:
    """Unless no other rank of the job could have had it."""
    told = [read_summary(reduced / f"rank{rank}" / "summary.fwrank") for rank in range(RANKS)]
    (late,) = (one for one in compare(told).answer.suspects if one.named)
    in_line = [late.excess_ms * 1e6 if str(rank) == late.name else 0.0 for rank in range(RANKS)]

    def names(nodes: list[str], in_line: list[float]) -> list[str]:
        fields = zip(nodes, in_line, strict=True)
        asked = [
            msgspec.structs.replace(one, node=node, in_line_ns=waited)
            for one, (node, waited) in zip(told, fields, strict=True)
        ]
        return [one.name for one in compare(asked).answer.suspects if one.named]

    assert names(["a"] * RANKS, [0.0] * RANKS) == [late.name]
    assert names(["a"] * RANKS, in_line) == []
    assert names(list("abcd"), in_line) == [late.name]


def write_trace_of_one(folder: Path) -> None:
    write(folder, measurement(0, 6, trace=Trace(file="trace.json", steps=3)))
    first = PLANTED.plant("nothing", 2, seed=1, kernels=24).timelines[0]
    SCORING.write_trace(first, folder / "rank0" / "trace.json.gz")


def test_ranks_that_take_as_long_are_not_named(folder: Path) -> None:
    for rank in range(1, RANKS):
        write(folder, measurement(rank, trace=Trace(why_not="no", others_are=True)))
        (folder / f"rank{rank}" / "summary.fwrank").unlink()
        (folder / f"rank{rank}" / "trace.json.gz").unlink()
    found = findwall.read(folder)
    assert found.ranks is not None and found.ranks.timed == RANKS - 1
    assert not any(one.named for one in found.ranks.suspects)
