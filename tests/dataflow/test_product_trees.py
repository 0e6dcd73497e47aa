"""Products in a row: which ops are one sum over several operands, and that any order gives the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from dataflow_observed import flow_of
from findwall.dataflow.product_orders import best, cost_of, made, parts, size, spelled
from findwall.dataflow.product_trees import product_trees
from findwall.fixes.kernels import product_order
from findwall.model.dataflow import ProductTree

q, k, v = (torch.randn(2, 3, 16, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
a, b, c = (torch.randn(16, 16, dtype=torch.float64, requires_grad=True) for _ in range(3))
row, column = torch.rand(16, 1, dtype=torch.float64), torch.rand(1, 16, dtype=torch.float64)
number = torch.tensor(3.0, dtype=torch.float64)


def straight() -> Any:
    return (q @ k.transpose(-2, -1) / number) @ v


def turned() -> Any:
    """Each matrix as high as wide: only the views tell what is summed."""
    return ((a @ b) * row).t() @ (c * 1.0)


def by_columns() -> Any:
    return torch.mm(a, torch.mm(b, c).mul_(column).contiguous())


def in_batches() -> Any:
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k).reshape(6, 16, 16)
    return torch.bmm(scores, v.reshape(6, 16, 4))


def at_once() -> Any:
    return torch.einsum("...nd,...md,...me->...ne", q, k, v)


def through_layers() -> Any:
    return torch.nn.functional.linear(torch.nn.functional.linear(a, b), c, row[:, 0])


CHAINS: dict[str, tuple[Callable[[], Any], list[Any], Any]] = {
    "straight": (straight, [q, k.mT, 1 / number, v], 0),
    "turned": (turned, [a, b, row[:, 0], c], 0),
    "by columns": (by_columns, [a, b, c, column[0]], 0),
    "in batches": (in_batches, [q, k, v], 0),
    "at once": (at_once, [q, k, v], 0),
    "through layers": (through_layers, [a, b, c], row[:, 0]),
}


def tree_of(expression: Callable[[], Any], folder: Path) -> list[ProductTree]:
    def step() -> None:
        expression().square().sum().backward()

    return [tree for tree, _ in product_trees(flow_of(step, folder))]


@pytest.mark.parametrize("case", CHAINS)
def test_every_order_gives_the_same(case: str, tmp_path: Path) -> None:
    expression, operands, more = CHAINS[case]
    (tree,) = tree_of(expression, tmp_path)
    assert [len(one) for one in tree.operands] == [one.dim() for one in operands]
    other = best(tree, lambda left, right, result: float(size(tree, left | right)))
    backwards = best(tree, lambda left, right, result: -float(size(tree, left | right)))
    leaves = [one for one in (q, k, v, a, b, c) if any(one is mine or mine._base is one for mine in operands)]
    results = []
    for found in (
        expression(),
        *(product_order.plain(torch, operands, spelled(one), "") + more for one in (tree, other, backwards)),
    ):
        wide = found.reshape(expression().shape)
        results.append([wide, *torch.autograd.grad(wide.square().sum(), leaves)])
    for result in results[1:]:
        for one, wanted in zip(result, results[0], strict=True):
            torch.testing.assert_close(one, wanted)


def soft() -> Any:
    return (q @ k.mT).softmax(-1) @ v


def added() -> Any:
    return (a @ b + row) @ c


def read_twice() -> Any:
    scores = a @ b
    return scores @ c + scores.exp()


def kept() -> Any:
    scores = a @ b
    scores.detach().sum().item()
    return scores @ c


@pytest.mark.parametrize("expression", [soft, added, read_twice, kept])
def test_what_does_not_commute_or_is_needed_ends_a_chain(
    expression: Callable[[], Any], tmp_path: Path
) -> None:
    assert tree_of(expression, tmp_path) == []


def test_the_part_of_a_chain_is_told_by_itself(tmp_path: Path) -> None:
    (tree,) = tree_of(lambda: ((a[:, :1] @ b[:1]) @ c) @ b, tmp_path)
    shapes = {
        tuple(tuple(one.sizes[label] for label in given) for given in one.operands) for one in parts(tree)
    }
    thin = ((16, 1)[:1], (16,), (16, 16))
    assert thin in shapes and len(list(parts(tree))) == 3
    for one in parts(tree):
        count = lambda left, right, result: float(size(one, left | right))  # noqa: B023, E731
        assert cost_of(best(one, count), count) <= cost_of(one, count)
        assert made(one)[-1] == frozenset(one.result)
