"""The clock under products: the denser they come, the slower they run, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.attribute.clocks import UNDER_LOAD, slowed
from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts
from findwall.attribute.whatif import gone
from findwall.replay.change import Change
from sketch import KERNELS, Drawn, facts_of, sketch

# About 0.9 ms at the roof of an H200.
PRODUCT = Drawn(KERNELS["m"].kernel, "aten::mm").given([8192, 8192], [8192, 5120], dtype="c10::BFloat16")
NOTHING = frozenset[str]()


def job(products: int, others: int) -> Facts:
    """So many products of a ms, and so many other kernels of a ms."""
    letters = "p" * products + "k" * others
    device = "".join(one.upper() if at % 2 else one for at, one in enumerate(letters))
    width = len(letters) + 2
    cpu, gpu = ("o" * len(letters)).ljust(width), f" {device}".ljust(width)
    return facts_of(sketch(cpu * 3, gpu * 3, "|".ljust(width) * 3, kernels={"p": PRODUCT}))


def without_others(facts: Facts) -> Change:
    return gone(facts, np.flatnonzero(of_class(facts, "pointwise")))


@drawn(20)
@given(st.integers(1, 6), st.integers(2, 8))
def test_what_is_removed_between_products_slows_them(products: int, others: int) -> None:
    facts = job(products, others)
    graph = without_others(facts).apply(facts.graph)
    left = (graph.own[graph.rows] * graph.weight[graph.rows]).sum() / facts.steps.count
    found = slowed(facts, graph, NOTHING, float(left))
    assert found is not None
    assert (found.factor > 1.0).all() and (found.factor <= 1 + UNDER_LOAD).all()
    assert len(found.rows) == products * facts.steps.count


@drawn(20)
@given(st.integers(0, 6), st.integers(1, 8))
def test_a_step_that_does_not_change_is_as_fast_as_before(products: int, others: int) -> None:
    facts = job(products, others)
    assert slowed(facts, facts.graph, NOTHING, facts.step) is None


def test_products_far_from_their_roof_draw_no_power() -> None:
    facts = facts_of(sketch("oo     " * 3, " ppppkk" * 3, "|      " * 3, kernels={"p": PRODUCT}, us=10_000))
    assert slowed(facts, without_others(facts).apply(facts.graph), NOTHING, 0.6 * facts.step) is None


def test_the_denser_the_slower() -> None:
    facts = job(3, 6)
    graph = without_others(facts).apply(facts.graph)
    found = [slowed(facts, graph, NOTHING, share * facts.step) for share in (0.9, 0.6, 0.4)]
    factors = [float(np.unique(one.factor)[0]) if one is not None else 1.0 for one in found]
    assert factors == sorted(factors) and factors[-1] > 1.05
    assert factors[-1] == pytest.approx(max(factors))
