"""Folders of ranks, read as summaries: on several processes, mixed with traces, with a broken file among
them."""

from __future__ import annotations

from pathlib import Path

import pytest

import findwall
from findwall.cli import main
from findwall.errors import InputError
from findwall.examine.many_ranks import MANY_RANKS, write_summaries
from findwall.model.diagnosis import Diagnosis
from findwall.ranks.reduced.mapping import reduce_all
from planted import PLANTED, SCORING


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for timeline in PLANTED.plant("slow-gpu", MANY_RANKS, seed=1, kernels=24).timelines:
        SCORING.write_trace(timeline, folder / f"rank{timeline.header.rank}.json.gz")
    return folder


def late(diagnosis: Diagnosis) -> tuple[str, str, str | None]:
    assert diagnosis.ranks is not None
    named = diagnosis.ranks.suspects[0]
    assert named.named
    return named.what, named.name, named.why


def truth() -> tuple[str, str, str]:
    fault = PLANTED.fault_of("slow-gpu", MANY_RANKS, 1)
    return fault.who[0], str(fault.who[1]), fault.why


def test_many_traces_and_their_summaries_say_the_same(traces: Path, tmp_path: Path) -> None:
    whole = findwall.read(traces)
    assert late(whole) == truth()
    assert whole.source.ranks == MANY_RANKS and whole.ranks is not None
    (waits,) = (row for row in whole.budget if row.cause == "straggler")
    assert waits.recoverable_ms is not None
    assert waits.recoverable_ms <= whole.ranks.suspects[0].saves_ms
    write_summaries([traces], tmp_path)
    alone = findwall.read(tmp_path)
    assert late(alone) == truth()
    assert alone.wall.cause is None and "The ranks wait for rank 2" in alone.wall.sentence
    assert alone.ranks is not None
    assert alone.ranks.suspects[0].saves_ms == pytest.approx(whole.ranks.suspects[0].saves_ms, rel=0.02)


def test_summaries_are_mixed_with_traces(traces: Path, tmp_path: Path) -> None:
    write_summaries([traces], tmp_path)
    (tmp_path / "rank0.fwrank").unlink()
    mixed = findwall.read([tmp_path, traces / "rank0.json.gz"])
    assert late(mixed) == truth() and mixed.source.ranks == MANY_RANKS
    with pytest.raises(InputError, match="rank 1"):
        findwall.read([tmp_path, traces / "rank1.json.gz"])


def test_a_broken_file_is_a_note(traces: Path, tmp_path: Path) -> None:
    paths = sorted(traces.iterdir())
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "na')
    found = list(reduce_all([*paths[:3], broken], workers=2))
    assert [one.summary is not None for one in found] == [True, True, True, False]
    assert str(broken) in found[-1].refused


def test_the_command_writes_them(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["read", str(traces / "rank0.json.gz"), "--summaries", str(tmp_path / "kept")])
    assert ended.value.code in (0, None)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["rank0.fwrank"]
    assert "1 summary in" in capsys.readouterr().err
