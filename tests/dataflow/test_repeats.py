"""What is computed again: in the same step, in the next, in every one."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from dataflow_observed import Step, flow_of
from findwall.dataflow.linking import Flow
from findwall.dataflow.repeats import repeats
from findwall.model.intervals import I64

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


def names_of(flow: Flow, heads: I64) -> set[str]:
    return {flow.observed.names[flow.observed.name[head]] for head in heads.tolist()}


def test_a_deep_copy_of_what_is_trained_is_another_in_every_step(tmp_path: Path) -> None:
    """It goes by storages of Python's, which no op hands on."""
    net = nn.Linear(16, 16)
    optimizer = torch.optim.Adam(net.parameters())
    kept: list[object] = []

    def step() -> None:
        optimizer.zero_grad()
        net(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        kept[:] = [copy.deepcopy((net.state_dict(), optimizer.state_dict()))]

    step()
    flow = flow_of(step, tmp_path)
    found = repeats(flow)
    assert not {"aten::copy_", "aten::set_", "aten::clone"} & names_of(flow, found.always)
    assert not {"aten::copy_", "aten::set_", "aten::clone"} & names_of(flow, found.twice)


def test_sparse_tensors_are_known_by_who_made_them(tmp_path: Path) -> None:
    places = torch.randint(0, 32, (2, 64))

    def step() -> None:
        values = torch.randn(64)
        torch.sparse_coo_tensor(places, values, (32, 32), check_invariants=False).coalesce().to_dense()

    flow = flow_of(step, tmp_path)
    assert "aten::coalesce" not in names_of(flow, repeats(flow).always)
    links = {(int(flow.head[w]), int(r)) for w, r in zip(flow.writer, flow.reader, strict=True) if w >= 0}
    head = {flow.observed.names[flow.observed.name[row]]: row for row in flow.heads().tolist()}
    made = next(head[name] for name in head if "sparse_coo_tensor" in name)
    assert (made, head["aten::coalesce"]) in links


@pytest.mark.parametrize("same", [True, False])
def test_tokens_that_python_writes_anew_are_known_by_what_they_are(same: bool, tmp_path: Path) -> None:
    """As a text that is encoded in every step."""
    words, layer, step_of = nn.Embedding(64, 16), nn.Linear(16, 16), {"number": 0}

    @torch.no_grad()
    def step() -> None:
        step_of["number"] += not same
        tokens = torch.tensor([(at + step_of["number"]) % 64 for at in range(40)])
        layer(words(tokens)).mean(0) + torch.randn(16)

    flow = flow_of(step, tmp_path)
    found = names_of(flow, repeats(flow).always)
    assert ({"aten::embedding", "aten::linear"} <= found) == same
    assert "aten::add" not in found


@pytest.mark.parametrize("numbers", ["floats", "others each time", "few labels", "drawn"])
def test_what_is_worked_out_of_a_list_of_pythons_is_the_same_where_that_is(
    numbers: str, tmp_path: Path
) -> None:
    """Few whole numbers may be the same by chance."""
    count = 0

    def step() -> None:
        nonlocal count
        count += numbers == "others each time"
        listed = [3, 1, 2] if numbers == "few labels" else [0.25 + count, 0.5, 0.75]
        given = torch.rand(3) if numbers == "drawn" else torch.tensor(listed)
        (given.float()[:, None] * torch.ones(8)).cos().sum()

    found = names_of(flow := flow_of(step, tmp_path), repeats(flow).always)
    assert ("aten::cos" in found) == (numbers == "floats")


@pytest.mark.parametrize("changes", [False, True])
def test_a_table_that_python_fills_number_by_number(changes: bool, tmp_path: Path) -> None:
    layer, count = nn.Linear(4, 4), 0

    def step() -> None:
        nonlocal count
        count += changes
        table = torch.zeros(3, 4)
        for row in range(3):
            for column in range(4):
                table[row, column] = math.sin(row + count + column)
        layer(torch.randn(3, 4) + table).sum().backward()

    found = names_of(flow := flow_of(step, tmp_path), repeats(flow).always)
    assert ("aten::copy_" in found) == (not changes)
