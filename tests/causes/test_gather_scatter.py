"""Rows fetched from scattered places."""

from __future__ import annotations

from findwall.causes.bandwidth import gather_scatter
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from sketch import Drawn, facts_of, sketch
from speaking import evidence_of, in_words

STEPS = "|        |        |        "
CPU = "o        o        o"
GPU = "xxxxx    xxxxx    xxxxx"


def fires() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="m        m        m", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, device=""))


def test_names_the_op() -> None:
    assert "gather" in in_words(gather_scatter.CAUSE, fires())
    assert "[1000000×64]" in evidence_of(gather_scatter.CAUSE, fires())[0]


def test_only_narrow_rows_are_sorted() -> None:
    """A row as long as what memory hands over at once wastes nothing, in whatever order it is read."""
    wide = fires()
    rows = Drawn("index_elementwise_kernel", "aten::index").given([4_000_000, 2], [8_000_000])
    narrow = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"x": rows}))
    assert "ort the indices" not in in_words(gather_scatter.CAUSE, wide)
    assert "ort the indices" in in_words(gather_scatter.CAUSE, narrow)
    advice = [all_fixes()["sorted-index"].advise(facts) for facts in (wide, narrow)]
    told = [one.likely is not None for one in advice if isinstance(one, Use)]
    assert told == [True, False]  # wide rows gain nothing; what narrow ones gain nobody can tell
