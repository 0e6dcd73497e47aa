"""What a step does for nothing, of jobs that torch really runs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pathlib import Path

import numpy as np
import torch

from dataflow_observed import benchmark, facts_with_flow, flow_of, planted
from findwall.causes.compute.unneeded_work import FIX_OF
from findwall.dataflow.unneeded import CONVOLUTION_BACKWARD, _heads
from findwall.fixes import Use, all_fixes
from findwall.model.catalogue import UNNEEDED

FIXES = benchmark("unneeded").FIXES
lines_of = benchmark("unneeded").lines_of


@pytest.mark.parametrize("name", FIXES)
def test_planted_work_is_found_with_its_line(name: str) -> None:
    facts = planted(name)
    said = {FIX_OF[one.kind]: one for one in facts.unneeded}
    assert set(said) == ({FIXES[name]} if FIXES[name] else set())
    for fix, one in said.items():
        assert isinstance(all_fixes()[fix].advise(facts), Use)
        assert facts.spent_ms(UNNEEDED) > 0
        assert int(one.place.rpartition(":")[2]) in lines_of(name)


@pytest.mark.parametrize("name", [name for name in FIXES if FIXES[name]])
def test_after_the_edit_nothing_is_found(name: str) -> None:
    assert planted(name, edited=True).unneeded == ()


def test_without_an_update_in_sight_no_gradient_is_called_unused(tmp_path: Path) -> None:
    """It may come every fourth step, or after what was recorded."""
    model = torch.nn.Linear(8, 8)
    flow = flow_of(lambda: model(torch.ones(2, 8)).sum().backward(), tmp_path)
    assert len(_heads(flow)["gradients"]) == 0


@pytest.mark.parametrize("frozen", [False, True])
def test_half_of_a_convolutions_gradients_may_be_for_nobody(frozen: bool, tmp_path: Path) -> None:
    """On cores one op works out both: what goes on to the layer before, and the weight's, which no optimizer
    has."""
    trained, judge = (torch.nn.Conv2d(*sides, 3, padding=1) for sides in ((3, 8), (8, 32)))
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    judge.requires_grad_(not frozen)
    images = torch.randn(4, 3, 48, 48)

    def step() -> None:
        judge(trained(images)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = facts_with_flow(step, tmp_path)
    said = {one.kind: one for one in facts.unneeded}
    assert set(said) == (set() if frozen else {"gradients"})
    if said:
        backward = [
            at for at in said["gradients"].atoms.tolist() if facts.op_name(at) == CONVOLUTION_BACKWARD
        ]
        row = facts.kernels.row[facts.atoms.index[backward]]
        same = facts.kernels.row[facts.atoms.index] == row[0]
        assert facts.atoms.own[backward[0]] == pytest.approx(facts.atoms.own[same].sum() / 2)
        fix = all_fixes()["no-unused-gradients"]
        outcome = fix.advise(facts)
        assert isinstance(outcome, Use) and outcome.best is not None
        left = outcome.best.apply(facts.graph)
        kept = left.own[left.rows][np.isin(left.row[left.rows], row)]
        assert (kept > 0).all()


def test_one_iteration_does_not_show_what_the_next_reads(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        model(torch.ones(2, 8)).tanh()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert len(_heads(flow_of(step, tmp_path, 2))["unread"]) > 0
    assert len(_heads(flow_of(step, tmp_path, 1))["unread"]) == 0


@pytest.mark.parametrize("varies", [True, False])
def test_nearly_all_of_a_step_may_be_the_same_but_not_all_of_its_ops(varies: bool, tmp_path: Path) -> None:
    """A kernel worked out of weights in each step of an inference; and a loop over one input."""
    weight, signals = torch.nn.Parameter(torch.randn(512, 512)), torch.randn(4, 8, 512)
    count = 0

    @torch.no_grad()
    def step() -> None:
        nonlocal count
        count += varies
        kernel = weight @ weight @ weight
        given = signals[count % 4] if varies else weight[:8]
        (given @ kernel).relu().sum()

    facts = facts_with_flow(step, tmp_path)
    told = [one for one in facts.unneeded if one.kind == "always"]
    assert bool(told) == varies
    if told:
        assert facts.atoms.own[told[0].atoms].sum() > 0.9 * facts.atoms.own.sum()
