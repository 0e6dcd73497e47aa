"""Autocast: products that it knows in 16 bits, what they feed on half the bytes, and casts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.attribute.autocast import autocast_likely, multiply_wide
from findwall.attribute.facts import Facts
from findwall.attribute.number_formats import cast_ns, likely_under_autocast, under_autocast
from findwall.fixes import NoUse, Use, all_fixes
from findwall.model.events import Kind
from findwall.replay.change import Change, Issue
from findwall.units import NS_PER_S
from sketch import KERNELS, Drawn, facts_of, sketch
from speaking import in_words

ROWS, INSIDE, COLUMNS = 8192, 4096, 1024
PRODUCT = KERNELS["t"].given([ROWS, INSIDE], [INSIDE, COLUMNS])
IN_PLACE = Drawn(KERNELS["t"].kernel, "aten::addmm_").given(
    [ROWS, COLUMNS], [ROWS, INSIDE], [INSIDE, COLUMNS]
)
FED = KERNELS["k"].given([ROWS, COLUMNS])
ALONE = KERNELS["k"].given([ROWS, 999])
NORM = KERNELS["w"].given([ROWS, COLUMNS], [COLUMNS])
TABLE = KERNELS["x"].given([ROWS, COLUMNS], [ROWS])
NARROW = Drawn(KERNELS["m"].kernel, "aten::mm").given(
    [ROWS, INSIDE], [INSIDE, COLUMNS], dtype="c10::BFloat16"
)
KNOWN = {"t": PRODUCT, "p": IN_PLACE, "k": FED, "v": ALONE, "w": NORM, "x": TABLE, "m": NARROW}
AUTOCAST = frozenset({"bf16-autocast"})


def job(letters: str) -> Facts:
    """Kernels of two ms each, all launched at the start of the step."""
    device = "".join((one.upper() if at % 2 else one) * 2 for at, one in enumerate(letters))
    width = len(device) + len(letters) + 1
    launched, run = ("o" * len(letters)).ljust(width), (" " * len(letters) + device).ljust(width)
    return facts_of(sketch(launched * 3, run * 3, "|".ljust(width) * 3, kernels=KNOWN))


def device_ns(facts: Facts, change: Change) -> list[float]:
    """Device time of each kernel of the first step with a change made."""
    graph = change.apply(facts.graph)
    mine = graph.rows[graph.step[graph.rows] == 0]
    return [float(value) for value in graph.own[mine]]


def test_products_that_are_called_in_place_are_left_alone() -> None:
    assert len(multiply_wide(job("pk"))) == 0
    mixed = job("tpk")
    assert len(multiply_wide(mixed)) == mixed.steps.count
    now, then = device_ns(mixed, Change()), device_ns(mixed, autocast_likely(mixed, "bf16", AUTOCAST))
    assert then[0] < 0.5 * now[0] and then[1] == now[1]
    said = all_fixes()["bf16-autocast"].advise(job("pk"))
    assert isinstance(said, NoUse) and "in place" in in_words(said)


def test_products_of_16_bits_stay_what_they_are() -> None:
    assert len(multiply_wide(job("mk"))) == 0


def test_only_what_a_product_feeds_is_halved() -> None:
    facts = job("tkvwx")
    one = np.flatnonzero(facts.atoms.index < len("tkvwx"))[:5]
    assert likely_under_autocast(facts)[one].tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    now, then = device_ns(facts, Change()), device_ns(facts, autocast_likely(facts, "bf16", AUTOCAST))
    assert then[1] == pytest.approx(0.5 * now[1])
    assert then[2:] == now[2:]


@drawn(20)
@given(st.text("tpkvwxm", min_size=1, max_size=6))
def test_what_is_likely_is_never_less_than_at_best(letters: str) -> None:
    facts = job(letters)
    assert (likely_under_autocast(facts) >= under_autocast(facts)).all()
    said = all_fixes()["bf16-autocast"].advise(facts)
    if isinstance(said, Use) and said.likely is not None and said.best is not None:
        best, likely = device_ns(facts, said.best), device_ns(facts, said.likely(AUTOCAST))
        assert all(one <= two * 1.001 for one, two in zip(best, likely, strict=True))


def test_casts_cost_the_host_besides_what_launching_the_products_does() -> None:
    facts = job("tkt")
    (more,) = [e for e in autocast_likely(facts, "bf16", AUTOCAST).edits if isinstance(e, Issue)]
    assert more.besides and len(more.rows) == 2 * facts.steps.count
    assert (more.ns > 0).all()


def test_a_compiler_folds_the_casts_and_what_the_products_feed_into_its_own_kernels() -> None:
    facts = job("tkt")
    change = autocast_likely(facts, "bf16", AUTOCAST | {"torch-compile"})
    assert not any(isinstance(edit, Issue) for edit in change.edits)
    assert device_ns(facts, change)[1] == device_ns(facts, Change())[1]


# -- casts ---------------------------------------------------------------------------------------


def casts_of(drawn: Drawn) -> tuple[float, Facts]:
    facts = facts_of(sketch("o   " * 3, " tt " * 3, "|   " * 3, kernels={"t": drawn}))
    return float(cast_ns(facts, np.array([0]))[0]), facts


def test_the_weight_is_cast_which_stands_behind_what_it_is_multiplied_with() -> None:
    for columns in (COLUMNS, 100 * ROWS):  # also where it is the larger operand: a small batch
        found, facts = casts_of(KERNELS["t"].given([ROWS, INSIDE], [INSIDE, columns]))
        least = INSIDE * columns * (4 + 2) / (facts.ceilings.bandwidth or np.inf) * NS_PER_S
        assert least <= found < 10 * least


def test_the_gradient_of_a_weight_is_cast_and_the_weight_not_again() -> None:
    """Forward, then what the gradient is taken further by, then the gradient of the weight."""
    forward = KERNELS["t"].given([ROWS, INSIDE], [INSIDE, COLUMNS])
    onwards = KERNELS["t"].given([ROWS, COLUMNS], [COLUMNS, INSIDE])
    gradient = KERNELS["t"].given([INSIDE, ROWS], [ROWS, COLUMNS])
    kernels = {"t": forward, "u": onwards, "v": gradient}
    engine = {"A": (Kind.OP, "autograd::engine::evaluate_function: MmBackward0")}
    cpu = f"{' AA       ' * 3}\n{'ooo       ' * 3}"
    timeline = sketch(cpu, "   ttuuvv " * 3, "|         " * 3, kernels=kernels, host=engine)
    facts = facts_of(timeline)
    found = cast_ns(facts, np.arange(3))
    assert found[0] == pytest.approx(found[2]) and found[0] > 0 and found[1] == 0


def test_no_operand_of_a_batched_product_is_a_weight() -> None:
    batched = Drawn(KERNELS["t"].kernel, "aten::bmm").given([64, 512, 512], [64, 512, 512])
    assert casts_of(batched)[0] == 0.0


def test_all_of_a_matrix_is_cast_for_one_vector() -> None:
    by_vector = Drawn(KERNELS["t"].kernel, "aten::mv").given([ROWS, INSIDE], [INSIDE])
    assert casts_of(by_vector)[0] > casts_of(PRODUCT)[0]


def test_without_shapes_no_cast_is_known() -> None:
    assert casts_of(Drawn(KERNELS["t"].kernel, "aten::mm"))[0] == 0.0
