"""What stands in the way once a change is made, and the step at the roofline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from examples import drawn
from findwall.facts.best_changes import ideal, roofline_ns
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from findwall.fixes.cause_behind import cause_after
from findwall.model.catalogue import ROOFS
from findwall.replay.blame import blame
from findwall.replay.change import Change, HostWork, Scale
from findwall.units import NS_PER_MS
from fixes.drawn import starved
from fixes.recorded import JOBS, job
from sketch import DRAWINGS, Drawing, facts_of, sketch


def after(facts: Facts, change: Change, moved: tuple[str, ...] = (), step: float | None = None) -> str | None:
    return cause_after(facts, change.apply(facts.graph), moved, facts.step if step is None else step)


def test_without_a_change_the_same_cause_stands() -> None:
    assert after(starved(), Change()) == "loader-starved"
    assert after(job("bias_attention"), Change()) == "unfused-attention"


def test_once_the_loader_keeps_up_the_device_decides() -> None:
    facts = starved()
    found = after(facts, Change((HostWork("loader-starved", 0.0),)), step=2.0 * NS_PER_MS)
    assert found is not None and found != "loader-starved"


def test_kernels_that_are_others_now_are_not_blamed_again() -> None:
    facts = job("bias_attention")
    assert after(facts, Change(), ("unfused-attention",)) != "unfused-attention"


@pytest.mark.parametrize("name", ["odd_widths", "plain_adamw", "handwritten_gelu"])
def test_with_all_that_could_be_given_back_only_a_roof_is_left(name: str) -> None:
    facts = job(name)
    every = tuple(facts.recoverable().ranked())
    assert after(facts, ideal(facts, *every), every) in ROOFS


def test_of_kernels_that_nobody_knows_no_roof_is_named() -> None:
    facts = facts_of(sketch(steps="|     " * 3, cpu="ddddo " * 3, gpu="    uu" * 3))
    assert after(facts, Change((HostWork("loader-starved", 0.0),)), step=2.0 * NS_PER_MS) is None


@pytest.mark.parametrize(
    ("name", "fix", "roof"),
    [
        ("accelerate_fp32", "bf16-autocast", "at-the-roof"),
        ("odd_widths", "pad-shapes", "at-the-roof"),
        ("plain_adamw", "fused-optimizer", "memory-roof"),
    ],
)
def test_products_that_were_mended_stand_at_the_roof_of_products(name: str, fix: str, roof: str) -> None:
    facts = job(name)
    said = all_fixes()[fix].advise(facts)
    assert isinstance(said, Use) and said.likely is not None
    change = said.likely(frozenset({fix}))
    assert after(facts, change, (*all_fixes()[fix].moves, "slow-kernels"), facts.step) == roof


@pytest.mark.parametrize("name", JOBS)
def test_the_roofline_is_no_longer_than_the_device_works(name: str) -> None:
    facts = job(name)
    least = roofline_ns(facts)
    assert least is None or 0 < least <= facts.step


def test_at_the_roofline_known_kernels_take_their_floor_and_unknown_ones_what_they_take() -> None:
    facts = facts_of(sketch("o    " * 3, " mmmm" * 3, "|    " * 3))
    floor = float(facts.kernels.floor[facts.atoms.index[0]])
    assert roofline_ns(facts) == pytest.approx(floor)
    unknown = facts_of(sketch("o    " * 3, " uuuu" * 3, "|    " * 3))
    assert roofline_ns(unknown) is None


@drawn(15)
@given(DRAWINGS)
def test_once_kernels_take_nothing_only_what_the_device_waits_for_is_named(drawing: Drawing) -> None:
    facts = drawing.facts
    least = roofline_ns(facts)
    assert least is None or 0 <= least <= float(facts.own.sum()) * 1.001
    rows = facts.kernels.row
    gone = Change((Scale(rows, np.zeros(len(rows))),))
    waits = blame(gone.apply(facts.graph), facts.reading.likely.calibration).idle.ranked()
    assert after(facts, gone) in (None, *ROOFS, *waits)
