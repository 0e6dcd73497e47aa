"""Real jobs of known truth: traces recorded on an H200, each timed before it was traced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.causes import all_causes
from findwall.causes.verdict import decide
from findwall.examine.establish import establish
from findwall.model.measured_run import Rank, Run
from recordings import facts as facts_of
from recordings import timeline as timeline_of
from speaking import in_words

JOBS = Path(__file__).parent.parent / "fixtures" / "jobs"
ZOO = Path(__file__).resolve().parents[3] / "shared" / "zoo"
FOLDERS = [folder for folder in (JOBS, ZOO) if (folder / "truth.json").exists()]


def truths() -> list[tuple[Path, dict[str, Any]]]:
    found = []
    for folder in FOLDERS:
        for name, truth in json.loads((folder / "truth.json").read_text()).items():
            path = folder / f"{name}.json.gz"
            if path.exists():
                found.append((path, truth))
    return found


CASES = [pytest.param(path, truth, id=path.name.removesuffix(".json.gz")) for path, truth in truths()]


@pytest.mark.parametrize(("path", "truth"), CASES)
def test_with_the_true_step_the_wall_is_right(path: Path, truth: dict[str, Any]) -> None:
    facts = facts_of(path, truth["step_ms"])
    verdict = decide(facts)
    assert [verdict.wall, verdict.cause] in truth["accepted_walls"]
    for cause in truth["must_also_find"]:
        assert facts.share(cause) >= 0.03


@pytest.mark.parametrize(("path", "truth"), CASES)
def test_the_budget_sums_to_the_true_step(path: Path, truth: dict[str, Any]) -> None:
    facts = facts_of(path, truth["step_ms"])
    spent = facts.spent()
    assert spent.total / 1e6 == pytest.approx(truth["step_ms"], rel=1e-3)
    assert (spent.values >= 0).all()


@pytest.mark.parametrize(("path", "truth"), CASES)
def test_the_trace_alone_is_never_wrong(path: Path, truth: dict[str, Any]) -> None:
    verdict = decide(facts_of(path))
    if verdict.cause is not None:
        assert [verdict.wall, verdict.cause] in truth["accepted_walls"]
    else:
        assert any([_wall(cause), cause] in truth["accepted_walls"] for cause in verdict.between)


def _wall(cause: str) -> str:
    from findwall.model.catalogue import WALL_OF

    return WALL_OF[cause]


@pytest.mark.parametrize(("path", "truth"), CASES[::3])
def test_order_ids_streams_and_origin_change_nothing(path: Path, truth: dict[str, Any]) -> None:
    plain = facts_of(path, truth["step_ms"])
    timeline = timeline_of(path)
    random = np.random.default_rng(7)
    events = timeline.events.take(random.permutation(len(timeline.events)))
    known = events.correlation > 0
    events = replace(
        events,
        start=events.start + 10**15,
        end=events.end + 10**15,
        correlation=np.where(known, 3 * events.correlation + 11, events.correlation),
        stream=np.where(events.stream >= 0, events.stream + 40, events.stream),
    )
    other = Rank(timeline=replace(timeline, events=events, path="renamed.json"))
    run = Run("torch-trace", ("renamed.json",), (other,))
    again = establish(run, other, plain.ceilings, truth["step_ms"] / 1e3, "given")
    assert again is not None
    assert decide(again) == decide(plain)
    assert again.spent().values == pytest.approx(plain.spent().values, rel=1e-6, abs=10)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_trace_alone_names_most_walls(folder: Path) -> None:
    mine = [path for path, _ in truths() if path.parent == folder]
    named = sum(decide(facts_of(path)).cause is not None for path in mine)
    assert named >= 9 / 11 * len(mine)


@pytest.mark.parametrize(("path", "truth"), CASES)
def test_what_is_said_is_concrete(path: Path, truth: dict[str, Any]) -> None:
    facts = facts_of(path, truth["step_ms"])
    cause = decide(facts).cause
    assert cause is not None
    module = all_causes()[cause]
    text = in_words(module, facts)
    assert " ms of the " in text and "unknown" not in text
    found = module.evidence(facts)
    assert found
    assert sum(one.ms or 0.0 for one in found) <= 1.05 * facts.spent_ms(cause)
