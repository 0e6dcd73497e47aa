"""Cells of recurrent layers that the job calls itself, one time step after the other."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.facts.step_traits import calls_around
from findwall.model.catalogue import FEWEST_REPEATS
from findwall.model.intervals import I64
from findwall.step.step_facts import found_once
from findwall.work.work_facts import WorkFacts

CELLS = {
    "aten::gru_cell": "nn.GRU",
    "aten::lstm_cell": "nn.LSTM",
    "aten::rnn_tanh_cell": "nn.RNN",
    "aten::rnn_relu_cell": "nn.RNN",
}


class Cells(msgspec.Struct, frozen=True):
    atoms: I64  # what they launch, their backward with it
    row: int  # of the first call
    calls: float  # a step
    layer: str  # that does all time steps in one call


@found_once
def cells_called(facts: WorkFacts) -> Cells | None:
    """None where a step calls too few for a loop."""
    around = calls_around(facts, np.arange(len(facts.atoms.index)), frozenset(CELLS))
    atoms = np.flatnonzero(around >= 0)
    calls = len(np.unique(around[atoms])) / facts.steps.count
    if calls < FEWEST_REPEATS:
        return None
    row = int(around[atoms[0]])
    return Cells(atoms, row, calls, CELLS[facts.timeline.name_of(row)])
