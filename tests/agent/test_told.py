"""What the ranks of a job tell together of the fixes that were made in each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from findwall.agent.rank_messages import applied_in_all, told_by_others
from findwall.model.applied import APPLIED_FILE, Applied, AppliedFix
from findwall.model.measurement import MEASUREMENT_FILE, Measurement

SEEN, NOTHING, TROUBLE = AppliedFix("2 workers"), AppliedFix(), AppliedFix("2 workers", "it was undone")


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([SEEN, SEEN], SEEN),
        ([TROUBLE], TROUBLE),
        ([SEEN, TROUBLE], AppliedFix(trouble="in rank 1: it was undone")),
        ([SEEN, None], AppliedFix(trouble="in rank 1: it told nothing of it")),
        ([SEEN, NOTHING], AppliedFix("in 1 of 2 ranks: 2 workers")),
        ([NOTHING, NOTHING], NOTHING),
    ],
)
def test_trouble_in_one_rank_is_trouble_in_the_job(ranks: list[AppliedFix | None], told: AppliedFix) -> None:
    each = [Applied({"fix": one} if one is not None else {}) for one in ranks]
    assert applied_in_all(each).fixes == {"fix": told}


def test_a_rank_has_told_all_with_its_last_measurement(tmp_path: Path) -> None:
    assert told_by_others(tmp_path, 1) == []
    place = tmp_path / "rank1"
    place.mkdir()
    (place / APPLIED_FILE).write_bytes(msgspec.json.encode(Applied({"fix": SEEN})))
    for final in (False, True):
        assert told_by_others(tmp_path, 2) is None
        (place / MEASUREMENT_FILE).write_bytes(msgspec.json.encode(Measurement(rank=1, final=final)))
    found = told_by_others(tmp_path, 2)
    assert found is not None and found[0].applied.fixes == {"fix": SEEN}
