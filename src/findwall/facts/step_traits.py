"""What the step is like: on a GPU or cores, training, compiled or replayed."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.facts.facts import Facts, matching, serve
from findwall.model.catalogue import FEWEST_REPEATS
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.step.call_names import optimizers
from findwall.step.links import is_replayed, nearest
from findwall.step.step_facts import StepFacts, found_once
from findwall.work.work_facts import WorkFacts

HAVE_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # optimizers that take fused=True, torch 2.11
_GENERATED = re.compile(r"^triton_(?:poi|red|per|for|tem|unk)_")
_COMPILED_RANGE = re.compile(r"CompiledFxGraph|Torch-Compiled Region|CompiledFunction")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


def is_training(facts: StepFacts) -> bool:
    return bool(facts.links.backward.any()) or bool(optimizers(facts.timeline))


def updates_itself(facts: WorkFacts) -> bool:
    """Whether the job's own code updates the parameters, and no optimizer object does."""
    return not optimizers(facts.timeline) and bool(serve(facts, facts.kernels.row, "update").any())


def range_names(facts: StepFacts) -> list[str]:
    """Names of the ranges that a person or a library put around host work."""
    rows = facts.timeline.rows(Kind.ANNOTATION)
    return [facts.timeline.names[at] for at in np.unique(facts.timeline.events.name[rows]).tolist()]


def compiled_share(facts: Facts) -> float:
    """Share of the device's time in kernels that torch.compile generated."""
    total = float(facts.own.sum())
    generated = matching(facts, facts.kernels.row[facts.atoms.index], _GENERATED)
    return float(facts.own[generated].sum()) / total if total > 0 else 0.0


def is_compiled(facts: Facts) -> bool:
    return compiled_share(facts) > 0 or any(_COMPILED_RANGE.search(name) for name in range_names(facts))


def graph_share(facts: WorkFacts) -> float:
    """Share of the device's rows that a graph launch issued; copies often stay outside and do not count."""
    rows = facts.kernels.row[facts.atoms.index]
    launch = facts.links.launch[rows[facts.timeline.events.kind[rows] != Kind.MEMCPY]]
    launch = launch[launch >= 0]
    return float(matching(facts, launch, _GRAPH_LAUNCH).mean()) if len(launch) else 0.0


def captured_share(facts: WorkFacts) -> float | None:
    """Share of the replayed kernels' time whose op a capture tells; None where nothing is replayed."""
    kernels = facts.kernels
    replayed = is_replayed(facts.timeline, facts.links, kernels.row)
    total = float(kernels.duration[replayed].sum())
    if not total:
        return None
    told = facts.timeline.events.kind[np.maximum(kernels.op, 0)] == Kind.CAPTURED
    return float(kernels.duration[replayed & told & (kernels.op >= 0)].sum()) / total


def has_shapes(facts: StepFacts) -> bool:
    return bool(facts.timeline.details.inputs)


def calls_around(facts: WorkFacts, atoms: I64, names: frozenset[str]) -> I64:
    """For each atom the row of the op of such a name it lies in, or its forward op does; -1 where none is."""
    events, links = facts.timeline.events, facts.links
    named = np.array([name in names for name in facts.timeline.names], bool)
    calls = events.is_kind(Kind.OP) & named[events.name]
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    if not calls.any():
        return np.full(len(ops), -1, np.int64)
    around = nearest(links.parent, calls)
    forward = np.where(ops >= 0, links.forward[np.maximum(ops, 0)], -1)
    own = np.where(ops >= 0, around[np.maximum(ops, 0)], -1)
    return np.where((own < 0) & (forward >= 0), around[np.maximum(forward, 0)], own)


# -- cells of recurrent layers that the job calls itself, one time step after the other ------------------

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


# -- GPU or cores --------------------------------------------------------------------------------------


def on_cores(facts: StepFacts) -> bool:
    """A CPU job: the device is the cores, and its kernels are the ops themselves."""
    return facts.rank.device_kind == "cpu"


def device_word(facts: StepFacts) -> str:
    return "CPU" if on_cores(facts) else "GPU"


def pieces(facts: StepFacts) -> str:
    return "ops" if on_cores(facts) else "kernels"
