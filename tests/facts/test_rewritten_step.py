"""Autocast: products that it knows in 16 bits, what they feed on half the bytes, and casts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import drawn
from findwall.facts.facts import Facts
from findwall.facts.number_formats import cast_ns, likely_under_autocast, under_autocast
from findwall.facts.rewritten_step import (
    LEAST_NS,
    autocast_likely,
    compiled_kernels,
    generated,
    model_rows,
    multiply_wide,
)
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.predict import predict
from findwall.model.events import Kind
from findwall.replay.change import Change, Issue
from findwall.units import NS_PER_S
from fixes.drawn import one_by_one, small_ops
from sketch import BIG, KERNELS, Drawn, facts_of, sketch
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
SORTED = Drawn("void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel", "aten::sort").given(
    [ROWS, COLUMNS]
)
COUNTED = Drawn(KERNELS["k"].kernel, "aten::copy_").given([ROWS, COLUMNS], [ROWS, COLUMNS], dtype="long int")
KNOWN = {
    "r": SORTED,
    "u": COUNTED,
    "t": PRODUCT,
    "p": IN_PLACE,
    "k": FED,
    "v": ALONE,
    "w": NORM,
    "x": TABLE,
    "m": NARROW,
}
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


def test_indices_are_not_halved_nor_what_is_put_in_order_with_them() -> None:
    facts = job("tkru")
    assert likely_under_autocast(facts)[:4].tolist() == [0.5, 0.5, 1.0, 1.0]
    assert under_autocast(facts)[:4].tolist() == [0.5, 0.5, 0.5, 1.0]


@drawn(20)
@given(st.text("tpkvwxmru", min_size=1, max_size=6))
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


ONCE = 4 * BIG[0] * BIG[1]  # bytes of one tensor
FASTER = 1.001  # times the bandwidth: what the measured curve may reach at the most
LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=4)


def in_a_row(letters: str, **kernels: Drawn) -> Facts:
    """Kernels of two ms each, all launched at the start of the step."""
    device = "".join((one.upper() if at % 2 else one) * 2 for at, one in enumerate(letters))
    width = len(device) + len(letters) + 1
    launched, run = ("o" * len(letters)).ljust(width), (" " * len(letters) + device).ljust(width)
    return facts_of(sketch(launched * 3, run * 3, "|".ljust(width) * 3, kernels=kernels))


def chains(*lengths: int) -> Facts:
    """Products with so many pointwise kernels between them."""
    return in_a_row("".join("m" + "k" * length for length in lengths) + "m")


def device_ns_compiled(facts: Facts, change: Change) -> float:
    """Device time of a step with a change made."""
    graph = change.apply(facts.graph)
    return float(graph.own[graph.rows].sum()) / facts.steps.count


def launches(facts: Facts, change: Change) -> int:
    """Launches a step that take the host time with a change made."""
    graph = change.apply(facts.graph)
    causes = np.unique(graph.cause[graph.rows][graph.own[graph.rows] > 0])
    return len(causes) // facts.steps.count


@drawn(20)
@given(LENGTHS)
def test_a_chain_becomes_one_kernel_that_still_moves_its_ends(lengths: list[int]) -> None:
    facts = chains(*lengths)
    change, gone = compiled_kernels(facts, frozenset({"torch-compile"}))
    stand = [length for length in lengths if length]
    assert launches(facts, change) == len(lengths) + 1 + len(stand)
    assert len(gone) == facts.steps.count * sum(length - 1 for length in stand)
    now, then = device_ns_compiled(facts, Change()), device_ns_compiled(facts, change)
    assert then < now if stand else then == now
    products = now * (len(lengths) + 1) / (len(lengths) + 1 + sum(lengths))
    bandwidth = facts.ceilings.bandwidth or np.inf
    assert then >= products + len(stand) * 2 * ONCE / bandwidth * NS_PER_S / FASTER


@drawn(10)
@given(LENGTHS)
def test_generated_kernels_and_those_gone_are_all_the_chains(lengths: list[int]) -> None:
    facts = chains(*lengths)
    code = generated(facts)
    assert len(code.rows) == len(code.ns)
    assert not set(code.rows.tolist()) & set(code.gone.tolist())
    assert len(code.rows) + len(code.gone) == facts.steps.count * sum(lengths)
    assert (code.ns >= LEAST_NS).all()


def test_a_longer_chain_saves_more_and_takes_no_longer() -> None:
    taken = [generated(chains(length)).ns.sum() for length in range(1, 6)]
    assert all(two <= one * 1.001 for one, two in pairwise(taken))


def test_a_norm_that_reads_anew_keeps_a_kernel_of_its_own() -> None:
    read_anew, read_along = in_a_row("mwkm"), in_a_row("mkwm")
    assert len(generated(read_anew).rows) == 2 * read_anew.steps.count
    assert len(generated(read_along).rows) == read_along.steps.count


def test_under_autocast_what_a_product_feeds_is_generated_on_fewer_bytes() -> None:
    product = KERNELS["t"].given([32768, 4096], [4096, 8192])
    facts = in_a_row("tkkt", t=product)
    wide, narrow = generated(facts).ns.sum(), generated(facts, narrow=True).ns.sum()
    assert 0.4 * wide < narrow < 0.6 * wide


def test_the_optimizer_and_copies_from_the_host_are_not_the_model() -> None:
    facts = one_by_one("NAdam")
    assert len(model_rows(facts)) == 0
    copied = facts_of(sketch("coo   " * 3, " hkkmm" * 3, "|     " * 3))
    assert len(model_rows(copied)) == 2 * copied.steps.count


def test_without_a_bandwidth_nothing_is_known_of_generated_kernels() -> None:
    facts = facts_of(sketch("ooo   " * 3, "kkKKmm" * 3, "|     " * 3, device="A GPU nobody knows"))
    assert len(generated(facts).rows) == len(generated(facts).gone) == 0


# -- the host ------------------------------------------------------------------------------------


def outcome(facts: Facts, fix: str) -> Use:
    said = all_fixes()[fix].advise(facts)
    assert isinstance(said, Use) and said.likely is not None
    return said


def issued_ns(facts: Facts, fix: str) -> float:
    """What the host pays in a step for issuing the model with a fix made."""
    use = outcome(facts, fix)
    assert use.likely is not None
    edits = [edit for edit in use.likely(frozenset({fix})).edits if isinstance(edit, Issue)]
    return sum(float(np.broadcast_to(edit.ns, edit.rows.shape).sum()) for edit in edits) / facts.steps.count


@pytest.mark.parametrize("count", [4, 9, 15])
def test_reduce_overhead_pays_for_calls_and_the_default_mode_for_launches_too(count: int) -> None:
    few, many = small_ops("uuv"), small_ops("u" * count + "v")
    assert issued_ns(many, "reduce-overhead") == pytest.approx(issued_ns(few, "reduce-overhead"))
    more = issued_ns(many, "torch-compile") - issued_ns(few, "torch-compile")
    assert more > (count - 2) * 0.5 * issued_ns(few, "torch-compile") / 20


def test_a_model_that_is_called_twice_in_a_step_pays_two_calls() -> None:
    once, twice = small_ops("uuv"), small_ops("uuvuuv")
    assert issued_ns(twice, "reduce-overhead") == pytest.approx(2 * issued_ns(once, "reduce-overhead"))


def test_of_many_small_kernels_graphs_give_more_than_generated_code_alone() -> None:
    facts = small_ops("u" * 60 + "v")
    names = ("cuda-graphs", "reduce-overhead", "torch-compile")
    by_hand, recorded, default = (predict(facts, {name: outcome(facts, name)}) for name in names)
    assert by_hand is not None and recorded is not None and default is not None
    assert max(by_hand.mid, recorded.mid) < 0.9 * default.mid


def test_kernels_that_nobody_knows_stay_what_they_are() -> None:
    facts = facts_of(sketch("oo    " * 3, "uuumMM" * 3, "|     " * 3, kernels={"m": Drawn("x", "my::op")}))
    change, gone = compiled_kernels(facts, frozenset({"torch-compile"}))
    assert len(gone) == 0
    assert device_ns_compiled(facts, change) == device_ns_compiled(facts, Change())


# -- rows by number, casts there and back, odd matrices ---------------------------------------------


EDGES, NODES, WIDTH = 4_000_000, 500_000, 64
FETCHED = Drawn(
    "void at::native::vectorized_gather_kernel<16, long>",
    "aten::gather",
    ([NODES, WIDTH], [], [EDGES, WIDTH]),
    ("float", "Scalar", "long int"),
)
ADDED = Drawn(
    "void at::native::indexFuncLargeIndex<float, long>",
    "aten::index_add_",
    ([NODES, WIDTH], [], [EDGES], [EDGES, WIDTH]),
    ("float", "Scalar", "long int", "float"),
)
COMPILE = frozenset({"torch-compile"})


def test_rows_that_are_fetched_to_be_added_up_are_not_written_in_between() -> None:
    both, apart = in_a_row("uv", u=FETCHED, v=ADDED), in_a_row("umv", u=FETCHED, v=ADDED)
    between = EDGES * WIDTH * 4 * 2 / (both.ceilings.bandwidth or np.inf) * NS_PER_S  # written and read
    product = float(both.kernels.duration[0])  # every drawn kernel takes as long
    found = [device_ns_compiled(facts, compiled_kernels(facts, COMPILE)[0]) for facts in (both, apart)]
    assert found[1] - product - found[0] >= 0.99 * between
    assert both.local()["gather-scatter"] > apart.local()["gather-scatter"]


def test_compiling_is_prescribed_for_rows_by_number() -> None:
    facts = in_a_row("uv", u=FETCHED, v=ADDED)
    said = all_fixes()["torch-compile"].advise(facts)
    assert isinstance(said, Use) and "fetches rows" in in_words(said)
    found = predict(facts, {"torch-compile": said})
    assert found is not None and found.mid < 0.9 * facts.step


def test_a_compiler_that_pads_copies_what_it_pads() -> None:
    fallback = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
    odd = Drawn(fallback, "aten::mm").given([8192, 4093], [4093, 4093], dtype="c10::BFloat16")
    facts = facts_of(sketch("o       " * 3, " uuuuuuu" * 3, "|       " * 3, kernels={"u": odd}, us=10_000))
    assert len(facts.atoms.of("misaligned-shapes")) > 0
    alone = device_ns_compiled(facts, compiled_kernels(facts, COMPILE | {"pad-shapes"})[0])
    padded = all_fixes()["pad-shapes"].advise(facts)
    assert isinstance(padded, Use) and padded.likely is not None
    by_hand = device_ns_compiled(facts, padded.likely(frozenset({"pad-shapes"})))
    itself = device_ns_compiled(facts, compiled_kernels(facts, COMPILE)[0])
    assert by_hand < itself < alone
