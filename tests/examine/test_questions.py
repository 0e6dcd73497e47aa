"""Whether steps are steady is only said of enough of them."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.examine.document_rows import is_steady, steadiness
from findwall.report.words import spoken


@pytest.mark.parametrize(
    ("seconds", "steady", "words"),
    [
        ([], None, "No steps were timed."),
        ([0.1], None, "Only one step was seen"),
        ([0.1, 0.1], None, "vary by 0.0 % over 2 profiled steps, too few to call them steady."),
        ([0.1, 0.3], False, "over 2 profiled steps."),
        ([0.1] * 5, True, "over 5 profiled steps."),
        ([0.1, 0.2] * 5, False, "over 10 profiled steps."),
    ],
)
def test_two_steps_that_are_alike_prove_nothing(
    seconds: list[float], steady: bool | None, words: str
) -> None:
    assert is_steady(np.array(seconds)) is steady
    found = steadiness(np.array(seconds), profiled=True)
    assert found.answer == {None: "unknown", True: "yes", False: "no"}[steady]
    assert words in spoken(found.claim)
