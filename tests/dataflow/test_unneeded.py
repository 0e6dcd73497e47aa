"""What a step does for nothing, of jobs that torch really runs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pathlib import Path

import torch

from dataflow_observed import benchmark, flow_of, planted
from findwall.causes.compute.unneeded_work import FIX_OF
from findwall.dataflow.unneeded import _heads
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
