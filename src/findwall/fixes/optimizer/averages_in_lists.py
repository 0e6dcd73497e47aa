"""Update averages of the weights with a few ops on lists of tensors: `multi_avg_fn`, `torch._foreach_lerp_`.

What it does:
An average of the weights (EMA, SWA) that walks from tensor to tensor launches a few kernels for each of them,
thousands per step, and where its decay comes from a counter on the CPU also a copy that the host waits for.
With lists each op is launched a few times for all of them:

    AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))    # torch.optim.swa_utils
    torch._foreach_lerp_(averages, weights, 1 - decay)                # written by oneself

Averaged every n steps, with the decay to the n-th power, it costs the n-th part.

When it does not help:
The tensors are few and large: then their bytes count, which lists do not save. A CUDA graph that holds the
whole step holds the average too.

Risk:
Results differ in the last bits at most. Integer buffers (a batch norm's counter) are copied, not averaged:
keep them out of the lists.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.facts.beside_the_model import averages
from findwall.facts.best_changes import in_lists, lists_at_best
from findwall.facts.user_lines import line_of_most
from findwall.facts.waits import launch_idle_before
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    as_on_cores,
    gone,
    lines,
    no_use,
    of_class,
    on_cores,
    rows_of,
    step_ms,
    time_of,
)
from findwall.fixes.less_work.removed_work import CAUSES_ON_CORES, on_cores_too
from findwall.fixes.refusals import REPLAYED
from findwall.model.catalogue import MENTION_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change, NoHostWork, Scale
from findwall.step.links import runs_in
from findwall.step.parameter_updates import MIXES, on_shapes, parameter_shapes
from findwall.work.work_facts import WorkFacts

MOVES = ("launch-bound",)
LISTS = re.compile(r"^aten::_foreach_")
# In place, or into a new average.
MIXES_OR_MAKES = re.compile(MIXES.pattern.replace("_$", "_?$"))


def use(facts: Facts) -> Outcome:
    atoms = averages(facts)
    copied = of_class(facts, "memcpy")[atoms]
    kernels = atoms[~copied]
    writes = writes_of(facts, kernels)
    if len(writes) == 0:  # or in lists already
        return no_use("averages-in-lists/none")
    waited = launch_idle_before(facts, atoms)
    if on_cores(facts):  # which do them between the others
        waited += time_of(facts, kernels)
    if waited <= MENTION_SHARE * step_ms(facts):
        return no_use("averages-in-lists/hidden")
    dropped = gone(facts, atoms[copied])
    figures = {
        "kernels": len(kernels) / facts.steps.count,
        "copies": float(copied.sum()) / facts.steps.count,
        "waits_ms": waited,
        **as_on_cores(facts),
    }
    # Whatever ops an average is written with, in lists one does it: what leads to the one that writes it is
    # gone, and with it the Python from tensor to tensor.
    dropped += gone(facts, np.setdiff1d(kernels, writes)) + Change((NoHostWork(rows_of(facts, kernels)),))
    return Use(
        Claim("averages-in-lists/foreach", figures, places=lines(line_of_most(facts, atoms))),
        lists_at_best(facts, writes) + dropped,
        (*MOVES, *on_cores_too(facts, kernels)),
        likely=lambda made: Change() if "cuda-graphs" in made else _mixed(facts, writes) + dropped,
        uncurved=on_cores(facts),
    )


def writes_of(facts: WorkFacts, atoms: I64) -> I64:
    """Of an average's atoms those that write it: one for each tensor, however many ops lead to it. An op on
    lists that cores work off one by one is one already."""
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    listed = runs_in(facts.timeline, facts.links, facts.timeline.rows_named(LISTS, Kind.OP))
    atoms = atoms[(ops < 0) | (listed[np.maximum(ops, 0)] < 0)]
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    on_weights, _ = on_shapes(facts.timeline, ops, parameter_shapes(facts.timeline))
    return atoms[on_weights & facts.timeline.bears(MIXES_OR_MAKES, ops)]


def _mixed(facts: WorkFacts, writes: I64) -> Change:
    """Two tensors are read and one is written, where a copy into the average reads and writes one. Cores work
    a list off one by one: what is written takes as long there."""
    copies = np.array([facts.op_name(atom) == "aten::copy_" for atom in writes.tolist()], bool)
    more = Scale(rows_of(facts, writes[copies]), np.full(int(copies.sum()), 3 / 2))
    return (Change() if on_cores(facts) else in_lists(facts, writes)) + Change((more,))


FIX = Fix(
    (*MOVES, *CAUSES_ON_CORES),
    "needs-review",
    use,
    (REPLAYED,),
)
