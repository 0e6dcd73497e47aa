"""Several backward passes through one forward pass: wanted each by itself, or only added up."""

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


def heads_of_one_trunk(folder: Path, way: str) -> Facts:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64), nn.Tanh())
    heads = nn.ModuleList(nn.Linear(64, 4) for _ in range(3))
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=1e-3)
    inputs = torch.randn(256, 64)

    def step() -> None:
        optimizer.zero_grad()
        shared = trunk(inputs + torch.rand(()))
        losses = [head(shared).square().mean() for head in heads]
        lengths: list[Tensor] = []
        if way == "summed":
            torch.stack(losses).sum().backward()
        elif way == "trunks of their own":
            for head in heads:
                head(trunk(inputs + torch.rand(()))).square().mean().backward()
        elif way == "kept apart":
            kept = []
            for loss in losses:
                loss.backward(retain_graph=True)
                kept.append([one.grad for one in trunk.parameters()])
                optimizer.zero_grad(set_to_none=True)
            for one, *each in zip(trunk.parameters(), *kept, strict=True):
                one.grad = torch.stack(each).median(0).values
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
                if way == "looked at":
                    lengths.append(next(trunk.parameters()).grad.norm())
        optimizer.step()
        if lengths:
            torch.stack(lengths).sum().item()

    return facts_with_flow(step, folder)


def test_passes_that_only_add_up_are_one(tmp_path: Path) -> None:
    facts = heads_of_one_trunk(tmp_path, "each its own")
    found = next(one for one in facts.unneeded if one.kind == "passes")
    assert found.place.startswith("test_repeated_passes.py:")
    names = [facts.op_name(int(atom)) for atom in found.atoms]
    assert names.count("aten::tanh_backward") == 2 * 2 * facts.steps.count  # two of three passes, two layers
    said = all_fixes()["one-backward"].advise(facts)
    assert isinstance(said, Use)
    assert "backward()` once at test_repeated_passes.py" in in_words(said)


@pytest.mark.parametrize("way", ["summed", "looked at", "kept apart", "trunks of their own"])
def test_passes_that_are_wanted_by_themselves_are_not(way: str, tmp_path: Path) -> None:
    facts = heads_of_one_trunk(tmp_path, way)
    assert isinstance(all_fixes()["one-backward"].advise(facts), NoUse)
