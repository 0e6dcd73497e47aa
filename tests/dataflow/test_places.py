"""Work on all places of a table or an image of which few are taken by number, in steps that torch runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from dataflow_observed import facts_with_flow, flow_of
from findwall.dataflow.row_work import ALONE, row_work

HEIGHT, WIDTH, PICKED, SIZE = 24, 40, 6, 16
Step = Callable[[], torch.Tensor]


def rays() -> torch.Tensor:
    """Of every pixel a direction, in the frame of a camera."""
    rows, columns = torch.randint(HEIGHT, (PICKED,)), torch.randint(WIDTH, (PICKED,))
    y, x = torch.meshgrid(torch.arange(HEIGHT).float(), torch.arange(WIDTH).float(), indexing="ij")
    towards = torch.stack([(x - 20.0) / 30.0, -(y - 12.0) / 30.0, -torch.ones_like(x)], -1)
    return (towards[..., None, :] * torch.eye(3)).sum(-1)[rows, columns]


table = torch.randn(HEIGHT, SIZE, requires_grad=True)
others = torch.randn(10 * WIDTH, SIZE, requires_grad=True)
square = torch.randn(SIZE, SIZE, requires_grad=True)
few = torch.randint(SIZE, (PICKED,))


def units(rows: torch.Tensor) -> torch.Tensor:
    return functional.embedding(rows, functional.normalize(table, dim=-1))


PICKED_PIXELS, PICKED_ROWS = PICKED / (HEIGHT * WIDTH), PICKED / HEIGHT
# What a step does, an op of it, and what is left of that op's work.
TAKEN: dict[str, tuple[Step, str, float]] = {
    "rays of pixels": (rays, "sum", PICKED_PIXELS),
    "what these are made of": (rays, "stack", PICKED_PIXELS),
    "lengths of looked up rows": (lambda: units(few), "linalg_vector_norm", PICKED_ROWS),
    "rows over their lengths": (lambda: units(few), "div", PICKED_ROWS),
    "scores of pairs": (
        lambda: (table @ others.t())[few[:1], few[:1]],
        "matmul",
        ALONE / (HEIGHT * 10 * WIDTH),
    ),
}
WHOLE: dict[str, tuple[Step, str]] = {
    "a score of each of few": (lambda: (table @ square)[torch.arange(HEIGHT), few[:1]], "matmul"),
    "columns": (lambda: (table * 2.0)[:, few[:2]], "mul"),
    "of a square, which may lie turned": (lambda: (square[..., None] * 2.0).sum(-1).t()[few[:2]], "sum"),
    "read by others too": (lambda: (lambda y: y[few].sum() + y.sum())((table * 2.0).abs().sum(-1)), "sum"),
    "sums over places": (lambda: (table * 2.0).sum(0)[few[:2]], "mul"),
}


def needed(step: Step, name: str, folder: Path) -> float:
    flow = flow_of(lambda: step().sum() if step is rays else step().sum().backward(), folder)
    names = [flow.observed.names[flow.observed.name[head]] for head in flow.heads().tolist()]
    return float(row_work(flow).needed[flow.heads()[names.index(f"aten::{name}")]])


@pytest.mark.parametrize("name", TAKEN)
def test_other_places_are_not_needed(name: str, tmp_path: Path) -> None:
    step, op, left = TAKEN[name]
    assert needed(step, op, tmp_path) == pytest.approx(left)


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_said_where_all_may_be_needed(name: str, tmp_path: Path) -> None:
    assert needed(*WHOLE[name], tmp_path) == 1.0


def test_the_gradient_of_few_places_fills_no_whole_table(tmp_path: Path) -> None:
    """And of what is needless for two reasons, that one is told which gives more back."""
    weight = torch.nn.Parameter(torch.randn(1500, 64))
    optimizer = torch.optim.SGD([weight], 1e-3)
    ends = torch.randint(1500, (2, 50))

    def step() -> None:
        for _ in range(2):  # the second time it was computed before
            scores = (weight @ weight.t())[ends[0], ends[1]]
            scores.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = facts_with_flow(step, tmp_path)
    first = facts.unneeded[0]
    assert first.kind == "dropped" and first.left is not None
    names = {facts.timeline.name_of(int(row)) for row in facts.kernels.op[facts.atoms.index[first.atoms]]}
    assert names >= {"aten::mm"} and names & {"aten::fill_", "aten::zero_", "aten::new_zeros"}
