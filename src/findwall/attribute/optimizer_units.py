"""The optimizer's update as a unit: one list of tensors, which a fused one goes through once."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from findwall.attribute.device_time import matching, of_class
from findwall.attribute.facts import Facts
from findwall.attribute.job import HAVE_FUSED
from findwall.attribute.units import Unit
from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.attribute.workmodel.optimizer import parameter_count
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.events import Inputs
from findwall.model.intervals import I64
from findwall.model.probes import OPTIMIZER
from findwall.structure.steps import optimizers

PIECE = 1 << 22  # numbers of a parameter, where only their sum is known: a weight of 2048 × 2048
_FUSED = re.compile("fused", re.IGNORECASE)
KEEPS_STATE = ("mul", "lerp")  # what an update with momentum does to its state


def optimizer_unit(facts: Facts) -> Unit | None:
    """None where the optimizer is fused already, has no fused form, or its tensors are not told."""
    name = next((one for one in optimizers(facts.timeline) if one in HAVE_FUSED), None)
    if name is None or facts.spent_ms("unfused-optimizer") <= 0:
        return None
    index = np.unique(facts.atoms.index[of_class(facts, "optimizer")])
    fused = matching(facts, facts.kernels.row[index], _FUSED)
    if facts.kernels.duration[index[fused]].sum() > MAJORITY_SHARE * facts.kernels.duration[index].sum():
        return None
    tensors, stems = _parameters(facts, facts.kernels.op[index])
    shapes: list[int | list[int]] = [list(one.dims) for one in tensors] or _by_size(facts)
    if not shapes:
        return None
    momentum = any(stem.startswith(KEEPS_STATE) for stem in stems)
    return Unit(
        kind="optimizer",
        op=OPTIMIZER,
        inputs=Inputs([shapes], [tensors[0].dtype if tensors else "float"], [], [name, str(momentum)]),
        rows=facts.kernels.row[index],
        carries=np.ones(len(index), bool),
        calls=facts.steps.count,
        ns=float(facts.kernels.duration[index].sum()) / facts.steps.count,
        absolute=True,
    )


def _parameters(facts: Facts, ops: I64) -> tuple[list[Tensor], set[str]]:
    """The tensors of the op that is called once for each parameter, and what the update's ops are called.

    An op that a parameter has one of goes over the fewest numbers: others are called more often.
    """
    by_name: dict[str, list[Tensor]] = {}
    for row in np.unique(ops[ops >= 0]).tolist():
        inputs = facts.timeline.inputs_of(row)
        if inputs is None:
            continue
        given = Arguments(inputs)
        first = given.tensor(0)
        found = given.tensor_list(0) if given.is_list(0) else [first] if first is not None else []
        by_name.setdefault(facts.timeline.name_of(row).rpartition("::")[2], []).extend(found)
    sizes = {name: sum(one.elements for one in found) for name, found in by_name.items()}
    most = max(sizes.values(), default=0)
    # What goes over far fewer numbers are the counts of steps, not parameters.
    large = {name: size for name, size in sizes.items() if size > MENTION_SHARE * most}
    if not large:
        return [], {name.removeprefix("_foreach_") for name in by_name}
    least = min(large, key=lambda name: (large[name], name))
    return _once_a_step(by_name[least], facts.steps.count), {name.removeprefix("_foreach_") for name in large}


def _by_size(facts: Facts) -> list[int | list[int]]:
    """Where lists were recorded without shapes: all parameters, in pieces as large as a layer's weight."""
    count = int(parameter_count(facts.timeline, facts.steps.count) or 0)
    whole, rest = divmod(count, PIECE)
    return [*([PIECE] for _ in range(whole)), *([[rest]] if rest else [])]


def _once_a_step(tensors: list[Tensor], steps: int) -> list[Tensor]:
    """Of tensors gathered over several steps those of one."""
    found: list[Tensor] = []
    for tensor, count in Counter(tensors).items():
        found += [tensor] * max(round(count / steps), 1)
    return found
