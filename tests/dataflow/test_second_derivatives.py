"""Gradients that are differentiated: computed once for each derivative, or once for all."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
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


def test_nobody_compiles_what_is_differentiated_twice(tmp_path: Path) -> None:
    said = all_fixes()["torch-compile"].advise(equation(tmp_path, at_once=True))
    assert isinstance(said, NoUse)
    assert "create_graph" in in_words(said)


def frames(folder: Path, rounds: int = 12) -> Facts:
    """Forces on the frames of a batch, of each frame's energy through all of them, and trained on."""
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    places = torch.rand(rounds, 64, 3)

    def step() -> None:
        by = places.clone().requires_grad_()
        energy = net(by).sum((1, 2))
        forces = []
        for frame in range(rounds):
            (slope,) = torch.autograd.grad(energy[frame], by, create_graph=True)
            forces.append(slope[frame])
        optimizer.zero_grad()
        torch.stack(forces).square().mean().backward()
        optimizer.step()

    return facts_with_flow(step, folder)


def test_what_a_gradient_of_a_round_is_differentiated_by_is_of_that_round(tmp_path: Path) -> None:
    facts = frames(tmp_path)
    loop = facts.loops[0]
    assert loop.gradients
    assert loop.rounds == 12
    names = [facts.op_name(int(atom)) for atom in loop.atoms]
    inside = sum(name == "aten::tanh_backward" for name in names) / facts.steps.count
    assert inside == 12 * 2  # the gradient itself, and again where it is differentiated
    said = all_fixes()["vectorise-loop"].advise(facts)
    assert isinstance(said, Use)
    assert "autograd.grad(y.sum(), x)" in in_words(said)
