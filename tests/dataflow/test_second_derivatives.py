"""Gradients that are differentiated: computed once for each derivative, or once for all."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts
from findwall.fixes import Use, all_fixes
from speaking import in_words


def equation(folder: Path, at_once: bool) -> Facts:
    """A step that fits a differential equation; each derivative is a pass of its own, or all are of one."""
    net = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    places = torch.rand(512, 3)

    def gradient(of: Tensor, by: Tensor) -> Tensor:
        found: Tensor = torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]
        return found

    def step() -> None:
        by = places.clone().requires_grad_()
        height = net(by)
        if at_once:
            slope = list(gradient(height, by).split(1, 1))
        else:
            slope = [gradient(height, by)[:, axis : axis + 1] for axis in range(3)]
        bend = sum(gradient(slope[axis], by)[:, axis : axis + 1] for axis in (0, 1))
        loss = (slope[2] + height * slope[0] - 0.1 * bend).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return facts_with_flow(step, folder)


@pytest.mark.parametrize("at_once", [False, True])
def test_the_same_gradient_is_worked_out_once(at_once: bool, tmp_path: Path) -> None:
    facts, fixes = equation(tmp_path, at_once), all_fixes()
    found = fixes["reuse-results"].advise(facts)
    assert isinstance(found, Use) != at_once, in_words(found)
    for other in ("builtin-ops", "less-recompute"):  # no activation by hand, no checkpoint
        said = fixes[other].advise(facts)
        assert not isinstance(said, Use), in_words(said)
    assert not facts.kernels.recompute.any()
