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
from findwall.dataflow.linking import iterations
from findwall.model.events import Kind


@pytest.mark.parametrize(("every", "likes"), [(3, [0, 0, 1]), (100, [-1, 0, 0])])
def test_a_step_that_also_evaluates_leaves_the_others_known(
    every: int, likes: list[int], tmp_path: Path
) -> None:
    """Of a step like the last that was seen the ops are known, if not what becomes of what they make."""
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs, number = torch.randn(32, 16), [0]

    def step() -> None:
        model(inputs).square().mean().backward()
        # Of three traced ones, one; of those seen to their end, one of as many or none.
        if number[0] % 3 == 2 and (every == 3 or torch._C._autograd._profiler_enabled()):
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
    of = [graph.op[named[step_of[named] == one]].min() for one in (1, 2, 3)]
    assert sorted(iterations(graph.flow.observed)[one] if one >= 0 else -1 for one in of) == likes
