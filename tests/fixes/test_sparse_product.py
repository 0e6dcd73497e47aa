"""Products with a matrix that is mostly zeros: seen where it stays as it is, and the same in sparse form."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

import torch

from findwall.causes.compute.unneeded_work import FIX_OF
from findwall.fixes import CannotTell, NoUse, Use, all_fixes
from findwall.fixes.less_work import sparse_product
from findwall.model.probes import CHEAPER, Draw
from findwall.probe.probed_rewrites import draw, form_work
from fixes.recorded_steps import NODES, WIDTH, over_neighbours
from speaking import in_words

pytestmark = pytest.mark.usefixtures("alone")
FIX = all_fixes()["sparse-product"]


@pytest.mark.parametrize("way", ["left", "right", "cast"])
def test_zeros_are_not_multiplied(way: str) -> None:
    facts = over_neighbours(way=way)
    use = FIX.advise(facts)
    assert isinstance(use, Use), in_words(use)
    (found,) = facts.sparse or ()
    assert found.share == pytest.approx(0.01, rel=0.2) and (found.rows, found.width) == (NODES, WIDTH)
    assert found.on_left is (way != "right")
    assert "to_sparse_csr()" in in_words(use) and "recorded_steps.py:" in in_words(use)
    assert use.rewrites[0].backward and FIX_OF["zeros"] == "sparse-product"
    assert any(one.kind == "zeros" and one.left is not None for one in facts.unneeded)


@pytest.mark.parametrize(
    ("share", "way", "why"), [(0.5, "left", "too-full"), (0.01, "made", "none"), (0.01, "written", "none")]
)
def test_a_matrix_that_is_half_full_or_changes_stays(share: float, way: str, why: str) -> None:
    facts = over_neighbours(share, way)
    outcome = FIX.advise(facts)
    assert isinstance(outcome, NoUse) and outcome.claim.id == f"sparse-product/{why}"
    assert not any(one.kind == "zeros" for one in facts.unneeded)


def test_without_a_look_nobody_can_tell() -> None:
    assert isinstance(FIX.advise(replace(over_neighbours(), sparse=None)), CannotTell)


def test_a_sparse_product_reads_a_row_for_each_number() -> None:
    (found,) = over_neighbours().sparse or ()
    one = replace(found, rows=1000, columns=1000, width=10, size=4, share=0.005)
    assert one.nbytes == 5000 * (40 + 4 + 8) + 1000 * 40


def test_both_forms_agree_in_values_and_gradients() -> None:
    torch.manual_seed(0)
    dense = torch.randn(40, 30, dtype=torch.float64) * (torch.rand(40, 30) < 0.1)
    x = torch.randn(30, 5, dtype=torch.float64, requires_grad=True)
    given = dense, dense.to_sparse_csr(), dense.t().to_sparse_csr(), x
    results = []
    for form in (sparse_product.plain, sparse_product.cheaper):
        y = form(torch, *given)
        results.append([y, *torch.autograd.grad(y.square().sum(), x)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_probed_is_as_empty_as_the_job_has_it() -> None:
    device = torch.device("cpu")
    drawn = draw(torch, device, Draw((50, 80), "float", entries=130))
    assert drawn.layout == torch.sparse_csr and drawn.shape == (50, 80) and drawn._nnz() == 130
    places, rows = drawn.col_indices(), drawn.crow_indices()
    assert int(rows[-1]) == 130 and int(places.max()) < 80
    assert all((places[a:b].diff() >= 0).all() for a, b in pairwise(rows.tolist()))
    use = FIX.advise(over_neighbours())
    assert isinstance(use, Use)
    (gradient,) = form_work(torch, device, use.rewrites[0].probe(CHEAPER), lambda fix: sparse_product)()
    assert gradient.shape == (NODES, WIDTH)
