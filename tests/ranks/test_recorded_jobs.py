"""Two real jobs, recorded operation by operation, whose published answers are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.model.answers.ranks_answer import RanksTogether
from findwall.ranks.compared_ranks import compare
from planted import loaded

STEPS = 8


def answer(shared: Path, name: str) -> RanksTogether:
    path = shared / "ranks_jobs" / f"{name}.npz"
    if not path.is_file():
        pytest.skip("the recorded jobs are not beside the project")
    return compare(loaded("recorded_ranks").summaries_of(path, STEPS)).answer


@pytest.mark.parametrize(
    ("name", "what", "who", "slowdown"), [("AR", "rank", "0", 1.973), ("ST", "stage", "3", 1.179)]
)
def test_the_published_answer_is_found(shared: Path, name: str, what: str, who: str, slowdown: float) -> None:
    found = answer(shared, name)
    assert found.replay_error == pytest.approx(0, abs=0.02)
    named = found.suspects[0]
    assert named.named and (named.what, named.name) == (what, who)
    assert found.step_ms is not None
    assert found.step_ms / (found.step_ms - named.saves_ms) == pytest.approx(slowdown, rel=0.03)
