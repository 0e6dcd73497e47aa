"""Rewrites of what takes rows by number, looks them up or puts them in order: where they are seen, where they
are not, and that the cheaper form gives the same."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from findwall.facts.facts import Facts
from findwall.fixes import CannotTell, NoUse, Outcome, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.kernels import index_select, lookup_not_onehot, topk
from findwall.fixes.predict import predict
from fixes.op_calls import FLOAT, HALF, LONG, Call, head, one_hot_rows, sorting, taking_rows
from speaking import in_words

FIXES = all_fixes()


def said(fix: str, facts: Facts) -> Outcome:
    return FIXES[fix].advise(facts)


def shortens(fix: str, facts: Facts) -> float:
    """By how many ms the step is predicted to be shorter; no bound is beaten."""
    use = said(fix, facts)
    assert isinstance(use, Use)
    step, best = predict(facts, {fix: use}), step_at_best(FIXES[fix], use, facts)
    assert step is not None
    assert best <= step.mid < facts.step
    return (facts.step - step.mid) / 1e6


# -- x[idx] --------------------------------------------------------------------------------------------


def test_rows_that_are_sorted_to_be_added_are_found() -> None:
    facts = taking_rows()
    found = said("index-select", facts)
    assert isinstance(found, Use)
    assert found.condition == "no-negative-index"
    assert "`x.index_select(0, idx)` for `x[idx]`" in in_words(found)
    # 3 times the gradient's bytes, at 0.38 of 4.32 TB/s, in place of the sort and of what adds.
    assert shortens("index-select", facts) == pytest.approx(13.1 - 1.87, abs=0.1)


def test_an_index_of_several_dims_is_flattened() -> None:
    found = said("index-select", taking_rows(index=(1000, 2000)))
    assert "idx.flatten()" in in_words(found)


@pytest.mark.parametrize(
    ("facts", "outcome", "words"),
    [
        (lambda: taking_rows(kind=HALF), NoUse, "rounds gradients after every addition"),
        (lambda: taking_rows(ranges=((120_000, 4), (4, 1))), NoUse, "several indices"),
        (lambda: taking_rows(ranges=((128, 120_000),)), NoUse, "not the first dimension"),
        (lambda: taking_rows(gradient=(120_000, 2_000_000)), NoUse, "not the first dimension"),
        (lambda: taking_rows((512, 512), (512,), ranges=((512, 512),)), NoUse, "not the first dimension"),
        (lambda: taking_rows(adds_us=1000.0), NoUse, "as fast"),
        (lambda: taking_rows(ranges=()), CannotTell, "record_shapes=True"),
        (lambda: taking_rows(device=""), CannotTell, "is not known"),
        (lambda: sorting(), NoUse, "no rows are taken"),
    ],
    ids=["16 bits", "two indices", "columns", "turned", "square", "few of each", "unknown", "no GPU", "none"],
)
def test_other_indexing_is_left_alone(facts: Callable[[], Facts], outcome: type, words: str) -> None:
    found = said("index-select", facts())
    assert isinstance(found, outcome)
    assert words in in_words(found)


# -- one_hot -------------------------------------------------------------------------------------------


def test_products_with_one_hot_rows_are_lookups() -> None:
    facts = one_hot_rows()
    found = said("lookup-not-onehot", facts)
    assert isinstance(found, Use)
    assert found.moves is not None
    assert set(found.moves) <= set(lookup_not_onehot.MOVES)
    words = in_words(found)
    assert "`one_hot(idx, 4096)`" in words
    assert "`F.embedding(idx, table)`, `index_add_(0, idx, x)`" in words
    # All 1.1 ms of it goes but a lookup, a sum and a count, of 10 to 40 us each, and the zeros under sums.
    assert shortens("lookup-not-onehot", facts) == pytest.approx(1.1, abs=0.15)


def test_what_a_crowd_does_to_the_sums_is_the_longer_end() -> None:
    use = said("lookup-not-onehot", one_hot_rows())
    facts = one_hot_rows()
    assert isinstance(use, Use)
    found = predict(facts, {"lookup-not-onehot": use})
    assert found is not None
    assert math.log(found.high / found.mid) > math.log(found.mid / found.low)


def test_the_gradient_of_the_table_goes_too() -> None:
    more = shortens("lookup-not-onehot", one_hot_rows(grows=True))
    assert more > shortens("lookup-not-onehot", one_hot_rows()) + 0.08


def test_another_tensor_of_that_size_ends_what_reads_the_one_hot_rows() -> None:
    """Distances of the next stage are as many: what reads them says nothing of these rows."""
    d = Call("aten::mm", (((32_768, 128), FLOAT), ((128, 4096), FLOAT)), kernels=(("sm80_xmma_gemm", 150.0),))
    least = Call("aten::argmin", (((32_768, 4096), FLOAT), "1", "False"), kernels=(("reduce_kernel", 140.0),))
    assert isinstance(said("lookup-not-onehot", one_hot_rows(32_768, 4096, 128, d, least)), Use)


@pytest.mark.parametrize(
    ("facts", "outcome", "words"),
    [
        (
            lambda: one_hot_rows(
                32_768, 4096, 128, Call("aten::mul", (((32_768, 4096), FLOAT), ((32_768, 4096), FLOAT)))
            ),
            CannotTell,
            "no product reads as many numbers",
        ),
        (lambda: one_hot_rows(4096, 4096), CannotTell, "no product reads as many numbers"),
        (lambda: one_hot_rows(32_768, 128, 128), CannotTell, "no product reads as many numbers"),
        (lambda: one_hot_rows(262_144, 2, 128), NoUse, "so few classes"),
        (lambda: sorting(), NoUse, "makes no one-hot rows"),
    ],
    ids=["masked", "square", "as wide", "few classes", "none"],
)
def test_other_one_hot_rows_are_left_alone(facts: Callable[[], Facts], outcome: type, words: str) -> None:
    found = said("lookup-not-onehot", facts())
    assert isinstance(found, outcome)
    assert words in in_words(found)


# -- sort ----------------------------------------------------------------------------------------------


def test_a_sort_of_which_the_head_is_read_is_a_selection() -> None:
    facts = sorting(head(8))
    found = said("topk", facts)
    assert isinstance(found, Use)
    assert found.condition == "sorted-read-by-nothing-else"
    assert "`x.topk(8)` instead of sorting, if nothing reads the rest" in in_words(found)
    assert 1.0 < shortens("topk", facts) < 4.0  # 18 passes at 0.27 ms in place of 7 ms


def test_the_smallest_along_another_dimension() -> None:
    dims = (4096, 65_536)
    facts = sorting(head(4, dims, axis=0), dims=dims, axis="0", descending="False")
    assert "`x.topk(4, dim=0, largest=False)`" in in_words(said("topk", facts))


def test_values_and_places_are_both_cut() -> None:
    facts = sorting(head(8, kind=FLOAT), head(8), name="aten::sort")
    assert isinstance(said("topk", facts), Use)


@pytest.mark.parametrize(
    ("facts", "outcome", "words"),
    [
        (lambda: sorting(head(8), stable="True"), NoUse, "a stable order"),
        (lambda: sorting(head(4096)), NoUse, "all that is sorted is read"),
        (lambda: sorting(head(8, axis=1)), CannotTell, "more than slices"),
        (lambda: sorting(head(8, first=4088)), CannotTell, "more than slices"),
        (lambda: sorting(), CannotTell, "more than slices"),
        (
            lambda: sorting(head(8), Call("aten::gather", (((16, 4096, 4096), LONG),))),
            CannotTell,
            "more than slices",
        ),
        (
            lambda: sorting(head(8), Call("aten::mul", (((16, 4096, 4096), FLOAT),)), name="aten::sort"),
            CannotTell,
            "more than slices",
        ),
        (lambda: sorting(head(8), stable=""), CannotTell, "record_shapes=True"),
        (lambda: sorting(head(8), sorts_us=900.0), NoUse, "so short"),
        (lambda: taking_rows(), NoUse, "nothing is sorted"),
    ],
    ids=[
        "stable",
        "all",
        "another axis",
        "the tail",
        "unread",
        "gathered",
        "values read",
        "unknown",
        "fast already",
        "none",
    ],
)
def test_other_sorts_are_left_alone(facts: Callable[[], Facts], outcome: type, words: str) -> None:
    found = said("topk", facts())
    assert isinstance(found, outcome)
    assert words in in_words(found)


# -- the same results ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_cheaper_forms_give_the_same(seed: int) -> None:
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(seed)

    def size(most: int) -> int:
        return int(torch.randint(1, most, (1,), generator=draw))

    def numbers(*dims: int) -> object:
        return torch.randn(*dims, dtype=torch.float64, generator=draw)

    rows, width, count = size(20), size(9), size(60)
    many = (count, size(4)) if seed % 2 else (count,)
    idx = torch.randint(rows, many, generator=draw)
    flat = idx.flatten()
    table, x = numbers(rows, width), numbers(len(flat), size(5))
    k = size(width + 1)
    cases = [
        (index_select, (table, idx)),
        (index_select, (numbers(rows, width, 3), idx)),
        (lookup_not_onehot, (flat, rows, table, x)),
        (lookup_not_onehot, (flat, rows, None, x)),
        (lookup_not_onehot, (flat, rows, table, None)),
        (topk, (table, k, bool(seed % 3))),
    ]
    for form, given in cases:
        results = []
        for way in (form.plain, form.cheaper):
            fresh = [
                one.clone().requires_grad_() if getattr(one, "is_floating_point", bool)() else one
                for one in given
            ]
            out = way(torch, *fresh)
            out = out if isinstance(out, tuple) else (out,)
            sum((part.double() * (at + 1.5)).square().sum() for at, part in enumerate(out)).backward()
            results.append([*out, *(one.grad for one in fresh if getattr(one, "grad", None) is not None)])
        assert len(results[0]) == len(results[1])
        assert all(torch.allclose(one, other) for one, other in zip(*results, strict=True)), form.__name__
