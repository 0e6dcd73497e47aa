"""What autograd's anomaly mode looks at behind its nodes: ops that no line of the job asks for."""

from __future__ import annotations

import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.call_names import in_window
from findwall.step.step_facts import StepFacts, found_once

NODE, ADDS_UP = "autograd::engine::evaluate_function: ", "AccumulateGrad"
LOOKS = "aten::isnan"
ASKS = (LOOKS, "aten::_is_any_true", "aten::any", "aten::item", "aten::is_nonzero")


@found_once
def anomaly_checks(facts: StepFacts) -> I64:
    """Ops that autograd's engine itself calls behind its nodes; none where it looks for NaN behind few."""
    names = facts.timeline.names
    nodes = _rows(
        facts, [at for at, name in enumerate(names) if name.startswith(NODE) and ADDS_UP not in name]
    )
    parents = facts.links.parent
    looks = _rows(facts, [at for at, name in enumerate(names) if name == LOOKS])
    looks = looks[np.isin(parents[looks], nodes)]
    if len(np.unique(parents[looks])) <= MAJORITY_SHARE * len(nodes):
        return looks[:0]
    asked = _rows(facts, [at for at, name in enumerate(names) if name in ASKS])
    return asked[np.isin(parents[asked], nodes)]


def _rows(facts: StepFacts, names: list[int]) -> I64:
    events = facts.timeline.events
    return in_window(facts, np.flatnonzero(np.isin(events.name, names) & events.is_kind(Kind.OP)))
