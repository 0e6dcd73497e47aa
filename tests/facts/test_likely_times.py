"""What a fix likely does: what the host pays at its own pace, products at the speed of their class."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.facts.best_changes import floor_in, gone
from findwall.facts.facts import Facts, of_class
from findwall.facts.likely_times import (
    FEW_LAUNCHES,
    UNDER_LOAD,
    USUAL_LAUNCH_NS,
    calls_a_step,
    host_ns,
    launch_ns,
    products_ns,
    slowed,
    to_likely,
)
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.replay.calibrate import Calibration, host_parts
from findwall.replay.change import Change, Issue
from findwall.replay.curves import curves
from findwall.replay.graph import LAUNCHING, Node
from fixes.drawn import small_ops
from fixes.recorded import job
from sketch import KERNELS, Drawn, facts_of, sketch

MANY = "u" * (FEW_LAUNCHES + 5) + "v"


def at_pace(facts: Facts, pace: float) -> Facts:
    """The same on a host that ran so much faster than it was recorded."""
    likely = replace(facts.reading.likely, calibration=Calibration(0.0, pace))
    return replace(facts, reading=replace(facts.reading, likely=likely))


# -- the host ------------------------------------------------------------------------------------


def test_a_launch_costs_what_the_trace_shows_and_the_usual_where_it_shows_too_few() -> None:
    assert launch_ns(at_pace(small_ops(MANY), 1.0)) == pytest.approx(20_000, rel=0.1)  # drawn 20 us apart
    assert launch_ns(small_ops("uv")) == USUAL_LAUNCH_NS


@pytest.mark.parametrize("pace", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("ops", ["uv", MANY])
def test_what_a_fix_costs_the_host_is_played_at_the_hosts_pace_once(ops: str, pace: float) -> None:
    """Of an eager op's time as it really is, the curves' share; not less because the host was slowed."""
    facts = at_pace(small_ops(ops), pace)
    row = facts.kernels.row[:1]
    graph = Issue(row, np.array(host_ns(facts, "compiled"))).apply(facts.graph)
    node = int(graph.cause[graph.rows[graph.row[graph.rows] == row[0]]][0])
    assert graph.kind[node] == Node.ISSUE
    played = host_parts(graph, facts.reading.likely.calibration)[LAUNCHING][node]
    assert played == pytest.approx(curves().host["compiled"] * launch_ns(facts))


def test_a_model_runs_as_often_as_what_it_does_least_often() -> None:
    assert calls_a_step(small_ops("uuuv")) == 1
    assert calls_a_step(small_ops("uuvuuv")) == 2
    assert calls_a_step(facts_of(sketch("o   " * 3, " uuu" * 3, "|   " * 3))) == 1


# -- products ------------------------------------------------------------------------------------


@drawn(20)
@given(
    st.sampled_from(["bf16", "tf32", "fp32"]),
    st.tuples(*[st.sampled_from([64, 500, 1024, 4096, 5001])] * 3),
    st.booleans(),
)
def test_a_product_takes_no_longer_than_today_and_no_less_than_its_floor(
    math: str, dims: tuple[int, int, int], aligned: bool
) -> None:
    rows, inside, columns = dims
    product = KERNELS["t"].given([rows, inside], [inside, columns])
    facts = facts_of(sketch("o      " * 3, " tttttt" * 3, "|      " * 3, kernels={"t": product}))
    found = products_ns(facts, np.array([0]), math, aligned=aligned)
    least = floor_in(facts, np.array([0]), math, share_of_bytes=1.0)
    today = facts.kernels.duration[facts.atoms.index[0]]
    assert found[0] == today or least[0] <= found[0] * 1.0001 < today * 1.0001


def test_a_product_off_alignment_is_slower_than_the_same_padded() -> None:
    odd = KERNELS["t"].given([8192, 4093], [4093, 4093])
    facts = facts_of(sketch("o       " * 3, " ttttttt" * 3, "|       " * 3, kernels={"t": odd}, us=10_000))
    atom = np.array([0])
    assert products_ns(facts, atom, "bf16")[0] > 2 * products_ns(facts, atom, "bf16", aligned=True)[0]


def test_what_is_no_product_has_no_time_in_another_format() -> None:
    facts = facts_of(sketch("o    " * 3, " kkk " * 3, "|    " * 3))
    assert np.isnan(products_ns(facts, np.array([0]), "bf16")).all()
    assert not to_likely(facts, np.array([0]), np.array([np.nan]))


@pytest.mark.parametrize("name", ["conv_fp32", "accelerate_fp32"])
def test_products_of_recorded_jobs_get_shorter_by_format(name: str) -> None:
    facts = job(name)
    multiply = [at for at in range(len(facts.atoms.index)) if facts.kernel_class(at) in MATRIX_CLASSES]
    atoms = np.array(multiply, np.int64)
    wide, tf32, bf16 = (np.nansum(products_ns(facts, atoms, math)) for math in ("fp32", "tf32", "bf16"))
    assert bf16 <= tf32 * 1.001 and tf32 <= wide * 1.001


# About 0.9 ms at the roof of an H200.
PRODUCT = Drawn(KERNELS["m"].kernel, "aten::mm").given([8192, 8192], [8192, 5120], dtype="c10::BFloat16")
NOTHING = frozenset[str]()


def products_beside(products: int, others: int) -> Facts:
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
    facts = products_beside(products, others)
    graph = without_others(facts).apply(facts.graph)
    left = (graph.own[graph.rows] * graph.weight[graph.rows]).sum() / facts.steps.count
    found = slowed(facts, graph, NOTHING, float(left))
    assert found is not None
    assert (found.factor > 1.0).all() and (found.factor <= 1 + UNDER_LOAD).all()
    assert len(found.rows) == products * facts.steps.count


@drawn(20)
@given(st.integers(0, 6), st.integers(1, 8))
def test_a_step_that_does_not_change_is_as_fast_as_before(products: int, others: int) -> None:
    facts = products_beside(products, others)
    assert slowed(facts, facts.graph, NOTHING, facts.step) is None


def test_products_far_from_their_roof_draw_no_power() -> None:
    facts = facts_of(sketch("oo     " * 3, " ppppkk" * 3, "|      " * 3, kernels={"p": PRODUCT}, us=10_000))
    assert slowed(facts, without_others(facts).apply(facts.graph), NOTHING, 0.6 * facts.step) is None


def test_the_denser_the_slower() -> None:
    facts = products_beside(3, 6)
    graph = without_others(facts).apply(facts.graph)
    found = [slowed(facts, graph, NOTHING, share * facts.step) for share in (0.9, 0.6, 0.4)]
    factors = [float(np.unique(one.factor)[0]) if one is not None else 1.0 for one in found]
    assert factors == sorted(factors) and factors[-1] > 1.05
    assert factors[-1] == pytest.approx(max(factors))
