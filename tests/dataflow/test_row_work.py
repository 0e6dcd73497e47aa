"""Rows that are worked on for nothing, in steps that torch really runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from dataflow_observed import facts_with_flow, flow_of
from findwall.dataflow.linking import Flow
from findwall.dataflow.row_ops import RowOps
from findwall.dataflow.row_work import row_work
from findwall.fixes import Use, all_fixes

WIDTH, ROWS, EDGES = 16, 40, 400


class Parts:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.of_two = torch.nn.Linear(2 * WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.table = torch.nn.Embedding(5, WIDTH)
        self.batch_norm = torch.nn.BatchNorm1d(WIDTH)
        self.edges = torch.randint(0, ROWS, (EDGES,))
        self.matrices = torch.randn(3, WIDTH, 2, requires_grad=True)  # one for each head
        self.halves = torch.randn(3, 2 * WIDTH, 1, requires_grad=True)
        self.heads = torch.randn(3, 20, WIDTH)
        self.mask = torch.arange(ROWS) % 4 == 0
        self.x = torch.randn(ROWS, WIDTH)
        self.tokens = self.x.view(4, 10, WIDTH)
        self.target = torch.where(self.mask, torch.zeros(ROWS, dtype=torch.long), -100)


Step = Callable[[Parts], Any]
# What a step does, and what is left of the work of the layer in it.
DROPPED: dict[str, tuple[Step, float]] = {
    "last token": (lambda p: p.layer(p.tokens)[:, -1], 0.1),
    "last token behind a norm": (lambda p: p.norm(p.layer(p.tokens))[:, -1], 0.1),
    "masked rows": (lambda p: functional.gelu(p.layer(p.x))[p.mask], 0.25),
    "rows by number": (lambda p: p.layer(p.x)[p.edges[:10]], 0.25),
    "a token of each sample": (lambda p: p.layer(p.tokens)[torch.arange(4), torch.arange(4)], 0.1),
    "index_select": (lambda p: p.layer(p.x).index_select(0, p.edges[:10]), 0.25),
    "a number of the last token": (lambda p: p.layer(p.tokens)[:, -1, 3], 0.1),
    "columns of the last token": (lambda p: p.layer(p.tokens).exp()[:, -1, 2:5], 0.1),
    "two readers of the same rows": (lambda p: (lambda y: y.relu() + y.tanh())(p.layer(p.x))[p.mask], 0.25),
}
REPEATED: dict[str, tuple[Step, float]] = {
    "rows of edges": (lambda p: p.layer(p.x[p.edges]), 0.1),
    "index_select": (lambda p: p.layer(p.x.index_select(0, p.edges)), 0.1),
    "gather": (lambda p: p.layer(p.x.gather(0, p.edges[:, None].expand(-1, WIDTH))), 0.1),
    "a small table": (lambda p: p.layer(p.table(p.edges % 5)), 5 / EDGES),
    "expanded": (lambda p: p.layer(p.x[:, None].expand(-1, 8, -1)), 0.125),
    "repeat_interleave": (lambda p: p.layer(p.x.repeat_interleave(4, 0)), 0.25),
    "repeat": (lambda p: p.layer(p.x.repeat(4, 1)), 0.25),
    "behind an activation": (lambda p: p.layer(p.x[p.edges].relu()), 0.1),
    "ends of edges": (lambda p: p.of_two(torch.cat([p.x[p.edges], p.x[p.edges.flip(0)]], -1)), 0.1),
    "one end of edges": (lambda p: p.of_two(torch.cat([p.x[p.edges], torch.rand(EDGES, WIDTH)], -1)), 0.55),
}
# The same of a product, where each head has its own matrix.
OF_HEADS: dict[str, tuple[Step, float]] = {
    "repeated in each": (lambda p: p.heads.repeat_interleave(5, 1) @ p.matrices, 0.2),
    "repeated over all": (lambda p: p.heads[:1].repeat(3, 1, 1) @ p.matrices, 1.0),
    "all pairs": (lambda p: _pairs(p.heads) @ p.halves, 0.05),
    "as they are": (lambda p: p.heads @ p.matrices, 1.0),
}
NEITHER: dict[str, Step] = {
    "rows of several repeated ones": lambda p: p.of_two(p.x[p.edges].view(EDGES // 2, 2 * WIDTH)),
    "a copy of them": lambda p: p.of_two(p.x[p.edges].view(2, -1, WIDTH).transpose(0, 1).flatten(1)),
    "all rows": lambda p: p.layer(p.x),
    "picked numbers of rows": lambda p: p.layer(p.x)[torch.arange(ROWS), p.edges[:ROWS] % WIDTH],
    "picked columns": lambda p: p.layer(p.x)[:, p.edges[:4] % WIDTH],
    "half of the columns": lambda p: p.layer(p.x)[:, : WIDTH // 2],
    "all rows, mask by mask": lambda p: (lambda y: y[p.mask].sum() + y[~p.mask].sum())(p.layer(p.x)),
    "all rows as well": lambda p: (lambda y: y[p.mask].sum() + y.sum())(p.layer(p.x)),
    "a mean over rows": lambda p: p.batch_norm(p.layer(p.x))[p.mask],
    "more rows than edges": lambda p: p.layer(p.x[p.edges[:10]]),
    "rows that meet others": lambda p: p.layer(p.x[p.edges] + torch.rand(EDGES, WIDTH)),
    "both ends added": lambda p: p.layer(p.x[p.edges] * p.x[p.edges.flip(0)]),
    "dropped out": lambda p: p.layer(functional.dropout(p.x[p.edges], 0.5)),
    "by each other": lambda p: p.layer(p.x) @ p.x.T,
}


def _pairs(x: torch.Tensor) -> torch.Tensor:
    count = x.shape[1]
    return torch.cat([x.repeat_interleave(count, 1), x.repeat(1, count, 1)], 2)


@cache
def shares(step: Step, folder: Path) -> tuple[float, float]:
    """Of the layer's work what is needed, and what is done on rows that differ."""
    parts = Parts()

    def whole() -> None:
        step(parts).sum().backward()

    flow = flow_of(whole, folder)
    head = layer_of(flow)
    found = row_work(flow)
    return float(found.needed[head]), float(found.distinct[head])


def layer_of(flow: Flow) -> int:
    return named(flow, "aten::linear")[0]


@pytest.mark.parametrize("name", DROPPED)
def test_rows_that_are_thrown_away_are_not_needed(name: str, tmp_path: Path) -> None:
    step, left = DROPPED[name]
    assert shares(step, tmp_path) == pytest.approx((left, 1.0))


@pytest.mark.parametrize("name", REPEATED)
def test_rows_that_were_repeated_are_the_same(name: str, tmp_path: Path) -> None:
    step, left = REPEATED[name]
    assert shares(step, tmp_path) == pytest.approx((1.0, left))


@pytest.mark.parametrize("name", OF_HEADS)
def test_a_matrix_for_each_head_works_on_its_own_rows(name: str, tmp_path: Path) -> None:
    step, left = OF_HEADS[name]
    parts = Parts()
    flow = flow_of(lambda: step(parts).sum().backward(), tmp_path)
    product = named(flow, "aten::matmul")[0]
    assert float(row_work(flow).distinct[product]) == pytest.approx(left)


def test_behind_the_work_rows_are_as_wide_as_its_results(tmp_path: Path) -> None:
    """Two numbers of each row in place of sixteen; of pairs, one of each end."""
    parts = Parts()
    flow = flow_of(lambda: OF_HEADS["repeated in each"][0](parts).sum().backward(), tmp_path)
    assert row_work(flow).carried == {named(flow, "aten::repeat_interleave")[0]: pytest.approx(2 / WIDTH)}
    flow = flow_of(lambda: OF_HEADS["all pairs"][0](parts).sum().backward(), tmp_path)
    carried = row_work(flow).carried
    for name, share in (("repeat_interleave", WIDTH), ("repeat", WIDTH), ("cat", 2 * WIDTH)):
        assert carried[named(flow, f"aten::{name}")[0]] == pytest.approx(1 / share)


def test_rows_that_all_differ_may_lie_side_by_side(tmp_path: Path) -> None:
    """What makes little of them could as well be given them before: nothing was repeated."""
    parts = Parts()
    beside = torch.rand(ROWS, WIDTH)
    flow = flow_of(lambda: parts.of_two(torch.cat([parts.x, beside], 1)).sum().backward(), tmp_path)
    assert row_work(flow).carried == {}


def test_rows_that_are_fetched_for_two_layers_are_fetched_twice_behind_them(tmp_path: Path) -> None:
    parts = Parts()

    def step() -> None:
        ends = parts.x.index_select(0, parts.edges)
        scores = functional.linear(ends, parts.table.weight)
        (parts.layer(ends).sum() + scores.sum()).backward()

    flow = flow_of(step, tmp_path)
    found = row_work(flow)
    assert found.carried[named(flow, "aten::index_select")[0]] == pytest.approx(1 + 5 / WIDTH)


def test_what_is_only_filled_has_no_rows(tmp_path: Path) -> None:
    """`normal_` is given a tensor and reads none of it."""
    parts, noise = Parts(), torch.empty(ROWS, WIDTH)

    def step() -> None:
        noise.normal_()
        parts.layer(noise[parts.edges]).sum().backward()

    assert float(row_work(flow := flow_of(step, tmp_path)).distinct[layer_of(flow)]) == pytest.approx(0.1)


def named(flow: Flow, name: str) -> list[int]:
    return [head for head in flow.heads().tolist() if flow.observed.names[flow.observed.name[head]] == name]


@pytest.mark.parametrize("name", NEITHER)
def test_nothing_is_said_of_other_rows(name: str, tmp_path: Path) -> None:
    assert shares(NEITHER[name], tmp_path) == (1.0, 1.0)


def test_a_sum_of_different_rows_is_not_repeated(tmp_path: Path) -> None:
    """The product over both ends can be taken apart, what comes behind it cannot."""
    parts = Parts()

    def step() -> None:
        ends = torch.cat([parts.x[parts.edges], parts.x[parts.edges.flip(0)]], -1)
        parts.layer(parts.of_two(ends).relu()).sum().backward()

    flow = flow_of(step, tmp_path)
    found = row_work(flow)
    linear = named(flow, "aten::linear")
    assert [round(float(found.distinct[head]), 3) for head in linear[:2]] == [0.1, 1.0]


def test_matrices_that_are_picked_for_each_row_need_no_copies(tmp_path: Path) -> None:
    nodes, matrices = torch.randn(20, 64), torch.randn(3, 64, 64, requires_grad=True)
    source, kind = torch.randint(0, 20, (500,)), torch.randint(0, 3, (500,))
    flow = flow_of(lambda: torch.bmm(nodes[source][:, None], matrices[kind]).sum().backward(), tmp_path)
    found = row_work(flow)
    named = {flow.observed.names[flow.observed.name[head]]: head for head in found.picks}
    left = 20 * 3 / (500 * 64)
    assert float(found.distinct[named["aten::bmm"]]) == pytest.approx(left)
    assert float(found.distinct[found.picks[named["aten::bmm"]]]) == pytest.approx(left)


def scores_of_all(parts: Any) -> Callable[[], None]:
    head = torch.nn.Linear(256, 4000)
    optimizer = torch.optim.SGD(head.parameters(), 1e-3)

    def step() -> None:
        hidden = torch.randn(8, 48, 256)
        functional.cross_entropy(head(hidden)[:, -1], torch.zeros(8, dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize(("wide", "picked"), [(True, True), (False, True), (True, False)])
def test_picking_moves_rows_as_wide_as_they_are(wide: bool, picked: bool, tmp_path: Path) -> None:
    """Right before the product: of a slice nothing, of others a quarter, read and written."""
    rows, layer = (
        torch.randn(ROWS, 50 if wide else 5),
        torch.randn(50 if wide else 5, WIDTH, requires_grad=True),
    )
    numbers = torch.arange(0, ROWS, 4)

    def step() -> None:
        y = (rows @ layer).relu()
        (y[numbers] if picked else y[:10]).sum().backward()

    moved = row_work(flow_of(step, tmp_path)).moved
    assert set(moved.values()) == ({2 * 10 * rows.shape[1] * 4.0} if picked else set())


def test_the_fix_names_the_line_and_what_is_left(tmp_path: Path) -> None:
    facts = facts_with_flow(scores_of_all(None), tmp_path)
    outcome = all_fixes()["fewer-rows"].advise(facts)
    assert isinstance(outcome, Use)
    assert outcome.claim.id == "fewer-rows/dropped"
    assert 0.0 < float(outcome.claim.figures["left_share"]) < 0.1  # type: ignore[arg-type]
    assert [place.partition(":")[0] for place in outcome.places] == ["test_row_work.py"]


def test_an_op_of_whose_tensors_none_was_seen_has_no_operands() -> None:
    """A collective, say: its tensors are told, and no use of them."""
    ops = object.__new__(RowOps)
    ops._cached = {}
    ops._observed = SimpleNamespace(uses_of=lambda _head: range(0), way=[])  # type: ignore[assignment]
    ops.given = lambda _head: [["Tensor(float)", [4, 2]]]  # type: ignore[method-assign]
    assert ops.operands(0) == []
