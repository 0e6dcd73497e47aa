"""Convert weights to their number format once, not in every step.

What it does:
Autocast, and `weight.to(dtype)` in a forward pass, convert the weights each time they are used. In inference
they never change: converted once, a step reads them as they are.

    model = model.to(torch.bfloat16)        # once, before the loop; then without autocast

When it does not help:
In training: the weights that the optimizer keeps are wide, and change in every step.

Risk:
What autocast kept in float32 (softmax, norms, losses) runs in 16 bits as well, unless those modules stay
wide: compare the outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.facts.called_atoms import called_by
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    gone,
    is_training,
    lines,
    no_use,
    time_of,
    to_floor,
    unless,
)
from findwall.model.catalogue import MENTION_SHARE
from findwall.model.intervals import I64
from findwall.step.call_names import in_window
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts
from findwall.units import ms
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts

CAST = "aten::to"
# Ops that multiply with weights, and where those stand: the weight, then its bias.
WEIGHTS = {
    **{f"aten::{name}": (1, 2) for name in ("linear", "conv1d", "conv2d", "conv3d", "convolution")},
    "aten::conv_transpose2d": (1, 2),
}
BEFORE = 3  # casts that come in front of such an op: what it is given, its weight and its bias


def plain(torch: Any, x: Any, weight: Any) -> Any:
    """As it is written today."""
    return torch.nn.functional.linear(x, weight.to(x.dtype))


def cheaper(torch: Any, x: Any, weight: Any) -> Any:
    """With a weight that was converted before: here only once, as any call shows the same."""
    narrow = weight if weight.dtype == x.dtype else weight.to(x.dtype)
    return torch.nn.functional.linear(x, narrow)


def use(facts: Facts) -> Outcome:
    atoms, heads, products = _casts(facts)
    if len(atoms) == 0:
        return no_use("cast-once/none")
    spent = time_of(facts, atoms)
    if spent <= MENTION_SHARE * ms(facts.step):
        return no_use("cast-once/little", spent_ms=spent)
    claim = Claim(
        "cast-once/before",
        {"spent_ms": spent, "casts": len(heads) / facts.steps.count},
        places=lines(line_of(facts, int(heads[0]))),
    )
    change = gone(facts, atoms)
    # A product shares the memory with what the cast before it still writes: at best it runs at its floor.
    best = change + to_floor(facts, products)
    return Use(
        claim,
        best,
        likely=lambda made: change,
        may=(lambda made: best,),
        uncurved=True,
        condition="weights-do-not-change",
    )


def _casts(facts: WorkFacts) -> tuple[I64, I64, I64]:
    """Atoms of casts whose result the next product takes as its weight, the casts, and the atoms of these
    products."""
    heads = in_window(facts, heads_of(facts))
    names = [facts.timeline.name_of(row) for row in heads.tolist()]
    casts: dict[int, list[int]] = {}
    for place, name in enumerate(names):
        if name in WEIGHTS:
            row, where = int(heads[place]), WEIGHTS[name]
            casts[row] = _before(facts, heads, names, place, where) + _inside(facts, row, where)
    mine = np.array(sorted({cast for found in casts.values() for cast in found}), np.int64)
    products = np.array([row for row, found in casts.items() if found], np.int64)
    op = facts.kernels.op[facts.atoms.index]
    of = np.where(op >= 0, head_of(facts, np.concatenate([mine, products]))[np.maximum(op, 0)], -1)
    return np.flatnonzero(np.isin(of, mine)), mine, np.flatnonzero(np.isin(of, products))


def _before(facts: StepFacts, heads: I64, names: list[str], place: int, where: tuple[int, ...]) -> list[int]:
    """The casts in front of a product that make its weight and its bias, told by their shapes. Where what it
    is given has the weight's shape, nobody can tell which is which."""
    given = Arguments(facts.timeline.inputs_of(int(heads[place])))
    taken = given.tensor(0)
    shapes = [tensor for at in where if (tensor := given.tensor(at)) is not None]
    if taken is None or any(one.dims == taken.dims for one in shapes):
        return []
    found = []
    for at in range(place - 1, max(place - 1 - BEFORE, -1), -1):
        if names[at] != CAST:
            break
        cast = Arguments(facts.timeline.inputs_of(int(heads[at]))).tensor(0)
        if cast is not None and any(one.dims == cast.dims and one.dtype != cast.dtype for one in shapes):
            found.append(int(heads[at]))
    return found


def _inside(facts: StepFacts, row: int, where: tuple[int, ...]) -> list[int]:
    """The casts that a product makes of its weight and its bias itself, as under autocast: what it is given
    stands there in the type that it had before."""
    given = Arguments(facts.timeline.inputs_of(row))
    taken = given.tensor(0)
    weights = [tensor for at in where if (tensor := given.tensor(at)) is not None]
    if taken is None or any(one.dims == taken.dims for one in weights):
        return []
    return [
        one
        for one in called_by(facts, row)
        if facts.timeline.name_of(one) == CAST
        and (cast := Arguments(facts.timeline.inputs_of(one)).tensor(0)) is not None
        and any(cast.dims == weight.dims and cast.dtype == weight.dtype for weight in weights)
    ]


FIX = Fix(
    ("dtype-casts", "launch-bound"),
    "changes-numerics",
    use,
    (unless("cast-once/trains", is_training),),
    removes=True,
)
