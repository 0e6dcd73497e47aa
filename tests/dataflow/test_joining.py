"""Which rows of a trace are which ops of the observed step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn

from dataflow_observed import facts_with_flow
from findwall.dataflow.joining import joined
from findwall.model.events import Kind


def test_a_step_that_also_evaluates_leaves_the_others_known(tmp_path: Path) -> None:
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs, number = torch.randn(32, 16), [0]

    def step() -> None:
        model(inputs).square().mean().backward()
        if number[0] % 3 == 2:  # of three traced ones, one; and none that was seen to its end
            for _ in range(20):
                model(inputs).detach().argmax(1)
        optimizer.step()
        optimizer.zero_grad()
        number[0] += 1

    facts = facts_with_flow(step, tmp_path)
    graph = joined(facts)
    assert graph is not None
    events = facts.timeline.events
    step_of = np.searchsorted(facts.steps.host, events.start, side="right")
    named = facts.timeline.rows_named(re.compile("aten::linear"), Kind.OP)
    known = {int(one): bool((graph.op[named[step_of[named] == one]] >= 0).all()) for one in (1, 2, 3)}
    assert sorted(known.values()) == [False, True, True]
