"""Which loops are told by what is launched over and over, of steps that torch really ran and traced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from findwall.facts.facts import Facts
from findwall.facts.host_loops import is_backward, loops, without_layers
from findwall.fixes import Use
from findwall.fixes.host.vectorise_loop import FIX
from sketch import facts_of
from speaking import in_words
from traced_steps import traced_steps

SAMPLES, WIDE = 24, 16
STEPS = 3
Step = Callable[[Tensor, Tensor], Tensor]  # the loss of what a model gave, and what it should be


class Scaled(nn.Module):
    """Each with its scale in one table of all."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.ones(SAMPLES, WIDE))

    def forward(self, x: Tensor) -> Tensor:
        for at in range(SAMPLES):
            x = x + self.scales[at] * torch.tanh(x)
        return x


def plain(out: Tensor, wanted: Tensor) -> Tensor:
    return (out - wanted).square().mean()


def traced(folder: Path, model: nn.Module, loss: Step, **measured: Any) -> Facts:
    x, wanted = torch.randn(SAMPLES, WIDE), torch.randn(SAMPLES, WIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_number: int) -> None:
        optimizer.zero_grad()
        loss(model(x), wanted).backward()
        optimizer.step()

    return facts_of(traced_steps(step, folder, STEPS), device_kind="cpu", **measured)


@pytest.mark.parametrize("product", [False, True])
def test_layers_that_are_alike_are_no_loop(tmp_path: Path, product: bool) -> None:
    parts = [nn.Linear(WIDE, WIDE)] if product else []
    layers = [nn.Sequential(*parts, nn.LayerNorm(WIDE), nn.ReLU()) for _ in range(SAMPLES)]
    facts = traced(tmp_path, nn.Sequential(*layers), plain)
    assert loops(facts) and without_layers(facts, loops(facts)) == []
    assert not isinstance(FIX.advise(facts), Use)


def test_what_the_backward_pass_repeats_is_no_loop_of_the_job(tmp_path: Path) -> None:
    facts = traced(tmp_path, Scaled(), plain)
    assert any(is_backward(facts, one) for one in loops(facts))
    said = FIX.advise(facts)
    assert isinstance(said, Use) and " rounds of 3 small ops" in in_words(
        said
    )  # those of its backward are longer
