"""The exported trace: its tracks hold what the budget holds, and nobody takes it for a recording."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from captures import FIXTURES
from findwall import cli
from findwall.examine import Examined
from findwall.examine.series import gather, own_tracks
from findwall.facts.facts import LISTED_CAUSE_SHARE, Facts
from findwall.model.causes import UNKNOWN, ByCause
from findwall.model.tracks import BLAME, FLOORS, PATH, WALLS, OwnTrack, OwnTracks
from findwall.report.perfetto import OWN, RECORDED, to_trace
from recordings import look

# Of one kind and several, starved, launch-bound, with several streams and ranks, on a CPU, with a rest.
JOBS = [
    "jobs/slow_loader.json.gz",
    "jobs/empty_cache.json.gz",
    "jobs/conv_fp32.json.gz",
    "jobs/decode_graph.json.gz",
    "blind/argon_dynamics",
    "blind/street_scenes",
    "blind/story_writer",
    "runs/ddp_one_wire",
    "runs/late_rank",
    "eager_training.json.gz",
]
CLOSE_NS = 1.0


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest) -> tuple[Any, Examined, Facts, OwnTracks]:
    run, found = look(FIXTURES / request.param)
    assert found.facts is not None
    return run, found, found.facts, own_tracks(found.facts)


def track(tracks: OwnTracks, kind: str) -> OwnTrack:
    (found,) = (one for one in tracks.tracks if one.kind == kind)
    return found


def summed(found: OwnTrack) -> Counter[str]:
    total: Counter[str] = Counter()
    for cause, ms in zip(found.told["cause"], found.told["ms_per_step"], strict=True):
        total[cause] += ms
    return total


def same(found: Counter[str], budget: ByCause) -> bool:
    return all(abs(found[cause] * 1e6 - ns) <= CLOSE_NS for cause, ns in budget.items())


Job = tuple[Any, Examined, Facts, OwnTracks]


def test_the_blame_sums_to_the_budgets_idle_time_by_cause(job: Job) -> None:
    _, _, facts, tracks = job
    assert same(summed(track(tracks, BLAME)), facts.reading.likely.idle)


def test_the_walls_sum_to_the_budget(job: Job) -> None:
    _, found, facts, tracks = job
    total = summed(track(tracks, WALLS))
    assert same(total, facts.spent())
    assert sum(total.values()) * 1e6 == pytest.approx(facts.step, rel=1e-6)
    budget = {row.cause: row.ms for row in found.diagnosis.budget}
    for cause, ms in total.items():  # what is too small to be listed is unknown there
        if cause != UNKNOWN and ms * 1e6 > LISTED_CAUSE_SHARE * facts.step:
            assert budget[cause] == pytest.approx(ms, rel=1e-6, abs=1e-6)


def test_slices_of_a_track_follow_each_other(job: Job) -> None:
    *_, tracks = job
    for kind in (BLAME, WALLS, FLOORS, PATH):
        found = track(tracks, kind)
        assert min(found.length, default=0.0) >= 0.0
        ends = [start + length for start, length in zip(found.start, found.length, strict=True)]
        assert all(end <= start + 0.01 for end, start in zip(ends, found.start[1:], strict=False))


def test_gaps_lie_where_the_device_is_idle(job: Job) -> None:
    *_, tracks = job
    streams = [one for one in tracks.tracks if one.kind == "stream"]
    busy = sorted(
        (start, start + length)
        for one in streams
        for start, length in zip(one.start, one.length, strict=True)
    )
    blame = track(tracks, BLAME)
    at = 0
    for start, length in zip(blame.start, blame.length, strict=True):
        if start >= tracks.length - CLOSE_NS:
            break
        while at < len(busy) and busy[at][1] <= start + CLOSE_NS:
            at += 1
        assert at == len(busy) or busy[at][0] >= start + length - CLOSE_NS


def test_the_critical_path_is_as_long_as_the_steps(job: Job) -> None:
    *_, tracks = job
    path = track(tracks, PATH)
    assert sum(path.length) == pytest.approx(tracks.length, rel=1e-6)
    assert path.start[-1] + path.length[-1] == pytest.approx(tracks.length, rel=1e-6)


def test_floors_are_no_longer_than_their_kernels(job: Job) -> None:
    *_, tracks = job
    told = track(tracks, FLOORS).told
    assert all(floor <= ms * (1 + 1e-9) for floor, ms in zip(told["floor_ms"], told["ms"], strict=True))


def test_the_file_is_a_chrome_trace(job: Job) -> None:
    run, found, facts, tracks = job
    step = gather(run, facts).timeline
    assert step is not None
    trace = json.loads(to_trace(found.diagnosis, step, tracks))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(event["pid"] == RECORDED for event in slices) == step.events
    assert sum(event["pid"] == OWN for event in slices) == sum(len(one.start) for one in tracks.tracks)
    names = {
        (event["pid"], event["tid"])
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {(event["pid"], event["tid"]) for event in slices} <= names
    assert all(event["ts"] >= -0.001 and event["dur"] >= 0 for event in slices)


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
@pytest.mark.parametrize("command", ["read", "report"])
def test_the_commands_write_it_and_read_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    target = tmp_path / name
    words = [command, str(FIXTURES / "jobs" / "slow_loader.json.gz"), "--export-trace", str(target)]
    words += ["-o", str(tmp_path / "page.html")] if command == "report" else []
    assert cli._run(words) == 0
    raw = target.read_bytes()
    trace = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
    assert trace["verdict"]["wall"] == "data / loader-starved"
    capsys.readouterr()
    for path in (target, tmp_path):
        assert cli._run(["read", str(path)]) == 2
        assert "--export-trace: its times are replayed, not recorded" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, document = FIXTURES / "jobs" / "slow_loader.json.gz", FIXTURES / "documents" / "full.json"
    target = str(tmp_path / "x.json")
    for words, said in (
        (["read", str(trace), "--export-trace", "x.pftrace"], "ends in .json"),
        (["report", str(document), "--export-trace", target], "it holds no trace"),
        (["report", str(trace), "--redact", "--export-trace", target], "--redact takes out"),
    ):
        assert cli._run(words) == 2
        assert said in capsys.readouterr().err
    assert not Path(target).exists()
