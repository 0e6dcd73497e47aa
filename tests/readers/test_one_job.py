"""Traces that are ranks of one job become one run; traces that only lie side by side do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trace_samples import HEADER, Event, modern, save

from findwall.errors import InputError
from findwall.readers import open_run

SILENT = {key: value for key, value in HEADER.items() if key != "distributedInfo"}  # no word of a rank
TIMELESS = {key: value for key, value in SILENT.items() if key != "baseTimeNanoseconds"}
HOUR_NS = 3600 * 10**9


def of_rank(rank: int, world_size: int | None = 2) -> dict[str, Any]:
    return {**SILENT, "distributedInfo": {"rank": rank, "world_size": world_size}}


def later(by_ns: int) -> dict[str, Any]:
    return {**SILENT, "baseTimeNanoseconds": SILENT["baseTimeNanoseconds"] + by_ns}


def on(device: str, header: dict[str, Any] = SILENT) -> dict[str, Any]:
    return {**header, "deviceProperties": [{"id": 0, "name": device}]}


def other_work(kept: int = 0) -> list[Event]:
    """The sample's steps, with all but so many of its three kernels renamed."""
    events = modern()
    names = sorted({event["name"] for event in events if event.get("cat") == "kernel"})
    for event in events:
        if event.get("cat") == "kernel" and event["name"] in names[kept:]:
            event["name"] = f"another_{event['name']}"
    return events


def two(folder: Path, one: dict[str, Any], other: dict[str, Any], work: list[Event] | None = None) -> Path:
    save(folder / "run_a.json", modern(), one)
    save(folder / "run_b.json", modern() if work is None else work, other)
    return folder


def refusal(folder: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        open_run([folder])
    assert caught.value.exit_code == 2
    return caught.value


def test_headers_that_name_ranks_of_one_world_are_believed(tmp_path: Path) -> None:
    two(tmp_path, of_rank(1, 4), on("NVIDIA H100 NVL", of_rank(3, 4)), other_work())
    run = open_run([tmp_path])
    assert [timeline.header.rank for timeline in run.timelines] == [1, 3]
    assert run.notes == ("2 of 4 ranks are here.",)


def test_the_error_says_what_happened_and_what_to_do(tmp_path: Path) -> None:
    error = refusal(two(tmp_path, of_rank(0), of_rank(0)))
    expected = (
        "holds traces that are not ranks of one job: run_a.json and run_b.json both say they are rank 0."
    )
    assert error.message == f"{tmp_path} {expected}"
    assert error.hint == f"Read them one at a time: findwall read {tmp_path / 'run_b.json'}"


def test_paths_given_one_by_one_are_judged_alike(tmp_path: Path) -> None:
    two(tmp_path, SILENT, later(HOUR_NS))
    with pytest.raises(InputError, match=r"not ranks of one job: run_a\.json and run_b"):
        open_run([tmp_path / "run_a.json", tmp_path / "run_b.json"])


def test_two_folders_are_not_blamed_on_one_of_them(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "trace.json", modern(), of_rank(0))
    with pytest.raises(InputError, match="These traces are not") as caught:
        open_run([tmp_path / "x", tmp_path / "y"])
    assert str(tmp_path / "x" / "trace.json") in caught.value.message  # the names alone would be the same


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (of_rank(0, 2), of_rank(1, 4), "say they are of 2 and of 4 ranks"),
        (of_rank(0, None), of_rank(0, None), "both say they are rank 0"),
        (of_rank(0, 1), SILENT, "there are 2 of them, and one says that the world size is 1"),
        (SILENT, on("Tesla T4"), r"ran on different devices \(NVIDIA H200; Tesla T4\)"),
        (SILENT, later(HOUR_NS), "were recorded at different times"),
        (TIMELESS, TIMELESS, "do not say which rank they are, nor when"),
    ],
)
def test_strangers_are_refused(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        open_run([two(tmp_path, one, other)])


def test_traces_of_one_time_and_one_work_are_ranks_without_saying_so(tmp_path: Path) -> None:
    assert len(open_run([two(tmp_path, SILENT, later(10**8), other_work(kept=2))]).ranks) == 2


def test_other_work_at_the_same_time_is_another_job(tmp_path: Path) -> None:
    assert "little work in common" in refusal(two(tmp_path, SILENT, SILENT, other_work(kept=1))).message


def test_without_a_clock_the_names_of_the_files_count(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        save(tmp_path / f"rank{rank}.json", modern(), TIMELESS)
    assert len(open_run([tmp_path]).ranks) == 3
    save(tmp_path / "rank7.json", other_work(), TIMELESS)
    assert "little work in common" in refusal(tmp_path).message


def test_a_rank_that_lost_its_header_still_belongs(tmp_path: Path) -> None:
    """As one whose end is missing, where its torch wrote the header last."""
    lost = {"baseTimeNanoseconds": HEADER["baseTimeNanoseconds"]}
    assert len(open_run([two(tmp_path, of_rank(0), lost)]).ranks) == 2


def test_one_that_does_not_say_its_rank_puts_all_to_the_test(tmp_path: Path) -> None:
    two(tmp_path, of_rank(0, 3), of_rank(1, 3), other_work())
    assert len(open_run([tmp_path]).ranks) == 2
    save(tmp_path / "run_c.json", modern(), SILENT)
    assert "run_a.json and run_b.json have little work in common" in refusal(tmp_path).message


def test_without_a_device_the_operators_are_the_work(tmp_path: Path) -> None:
    host = [event for event in modern() if event.get("cat") in ("cpu_op", "user_annotation")]
    save(tmp_path / "rank0.json", host, TIMELESS)
    save(tmp_path / "rank1.json", host, TIMELESS)
    assert len(open_run([tmp_path]).ranks) == 2


def test_a_folder_of_unlike_public_traces_is_no_job(shared: Path) -> None:
    traces = shared / "traces"
    before_and_after = [traces / f"v100_resnet50_workers{count}.json.gz" for count in (0, 4)]
    with pytest.raises(InputError, match="recorded at different times"):
        open_run(before_and_after, workers=1)
    ranks = open_run([traces / f"recsys_rank{rank}_of_128.json.gz" for rank in (0, 1)], workers=1)
    assert ranks.notes == ("2 of 128 ranks are here.",)
