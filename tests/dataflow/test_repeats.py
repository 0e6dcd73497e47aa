"""What is computed again: in the same step, in the next, in every one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from dataflow_observed import Step, flow_of
from findwall.dataflow.repeats import repeats

STEPS, REQUEST = 5, 4  # observed; steps of one request


def sampling(keep: bool, refilled: bool = False) -> Step:
    """A step of a sampler a step, and every few steps another prompt."""
    encoder, net = nn.Linear(16, 16), nn.Linear(32, 16)
    buffer = torch.zeros(4, 16)
    count, state = 0, torch.randn(4, 16)
    prompt = code = buffer

    @torch.no_grad()
    def step() -> None:
        nonlocal count, prompt, code, state
        if refilled:
            prompt = buffer
            prompt.numpy()[:] = count
        elif count % REQUEST == 1:
            prompt = torch.randn(4, 16)
        if not keep or count % REQUEST == 1:
            code = encoder(prompt)
        state = net(torch.cat([state, code], 1))
        count += 1

    return step


@pytest.mark.parametrize(("keep", "refilled"), [(False, False), (True, False), (False, True)])
def test_what_hangs_on_the_request_is_made_once_for_it(keep: bool, refilled: bool, tmp_path: Path) -> None:
    """Not where it is kept, nor where memory may be filled in a way that nobody sees."""
    flow = flow_of(sampling(keep, refilled), tmp_path, STEPS)
    found = repeats(flow)
    names = [flow.observed.names[flow.observed.name[head]] for head in found.twice.tolist()]
    assert names == ([] if keep or refilled else ["aten::linear"] * (REQUEST - 1))
    assert "aten::linear" not in {
        flow.observed.names[flow.observed.name[head]] for head in found.always.tolist()
    }


@pytest.mark.parametrize("changes", [False, True])
def test_what_numbers_of_python_make_of_constants_is_the_same_while_they_are(
    changes: bool, tmp_path: Path
) -> None:
    layer, state = nn.Linear(8, 8), {"count": 0}

    def step() -> None:
        state["count"] += changes
        window = (torch.arange(8) / 7 * (2 + state["count"])).cos() * 0.5
        layer(torch.where(window > 0.1, window, 0.0)).sum().backward()

    flow = flow_of(step, tmp_path)
    always = [flow.observed.names[flow.observed.name[head]] for head in repeats(flow).always.tolist()]
    whole = ["aten::arange", "aten::div", "aten::mul", "aten::cos", "aten::mul", "aten::gt", "aten::where"]
    assert always[: len(whole)] == (whole[:2] if changes else whole)


@pytest.mark.parametrize("of_columns", [False, True])
def test_what_is_picked_by_chance_is_another_in_every_step(of_columns: bool, tmp_path: Path) -> None:
    """Also where the places stand behind a dimension that is taken whole (`x[:, places]`)."""
    model = nn.Module()
    model.register_buffer("values", torch.randn(32, 32))
    generator = torch.Generator()

    def step() -> None:
        places = torch.randperm(32, generator=generator)[:16]
        picked = model.values[:, places] if of_columns else model.values[places]
        assert picked.square().sum() > 0

    found = repeats(flow_of(step, tmp_path, STEPS))
    assert len(found.always) == 0
