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

from findwall.facts.gradient_free_work import head_of, heads_of
from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gone, is_training, lines, no_use, time_of, unless
from findwall.fixes.refusals import ON_CORES
from findwall.model.catalogue import MENTION_SHARE
from findwall.model.intervals import I64
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
    atoms, heads = _casts(facts)
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
    return Use(claim, change, likely=lambda made: change, uncurved=True, condition="weights-do-not-change")


def _casts(facts: WorkFacts) -> tuple[I64, I64]:
    """Atoms of casts whose result the next product takes as its weight, and the ops that Python called."""
    heads = heads_of(facts)
    start = facts.timeline.events.start[heads]
    heads = heads[(start >= facts.queue.opens) & (start < facts.queue.closes)]
    names = [facts.timeline.name_of(row) for row in heads.tolist()]
    found = [
        cast
        for place, name in enumerate(names)
        if name in WEIGHTS
        for cast in _before(facts, heads, names, place, WEIGHTS[name])
    ]
    mine = np.array(sorted(set(found)), np.int64)
    op = facts.kernels.op[facts.atoms.index]
    of = head_of(facts, heads)
    return np.flatnonzero((op >= 0) & np.isin(of[np.maximum(op, 0)], mine)), mine


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


FIX = Fix(
    ("dtype-casts", "launch-bound"),
    "changes-numerics",
    use,
    (ON_CORES, unless("cast-once/trains", is_training)),
    removes=True,
)
