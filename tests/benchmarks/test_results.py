"""What was said of jobs that nobody edited: every field is known, and the counts are those of the jobs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import never_wrong
from findwall.model.catalogue import WALL_OF

ELSEWHERE = {
    "catalogue.py",
    "score.json",
    "sensitivity.json",
}  # of the source, and what is written when asked
BENCHMARKS = Path(never_wrong.__file__).parent


def test_the_readme_names_all_that_is_there_and_nothing_that_is_gone() -> None:
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    there = {path.name for path in BENCHMARKS.iterdir() if path.name not in ("README.md", "__pycache__")}
    there |= {path.name for path in (BENCHMARKS / "results").iterdir()}
    assert [name for name in sorted(there) if not re.search(rf"[`/]{name}\b", text)] == []
    named = re.findall(r"`(?:[a-z_]+/)*([a-z_0-9]+\.(?:py|json))\b", text)
    known = {path.name for path in BENCHMARKS.rglob("*.*")} | ELSEWHERE
    assert [name for name in named if name not in known] == []


def test_every_field_is_known() -> None:
    assert never_wrong.load().zoo
    with pytest.raises(msgspec.ValidationError, match="seconds_to_verdict"):
        msgspec.json.decode(b'{"cause": null, "seconds_to_verdict": 3}', type=never_wrong.Said)


@pytest.mark.parametrize("name", never_wrong.load().rounds())
def test_the_counts_are_those_of_the_jobs(name: str) -> None:
    one = never_wrong.load().rounds()[name]
    assert never_wrong.counted(one) == {"right": one.right, "none": one.none, "wrong": one.wrong}
    assert not set(one.not_run) & set(one.jobs)
    for said in one.jobs.values():
        assert set(said.truth.split(" or ")) <= WALL_OF.keys()
        assert said.cause is None or said.cause in WALL_OF
