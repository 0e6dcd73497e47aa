"""Keep images channels-last in memory, as the tensor cores read them.

What it does:
Convolutions on tensor cores want the channels of a pixel side by side (NHWC). Given the default
layout (NCHW), the library turns the input round and the result back, layer after layer, and adds
the bias in a kernel of its own. One change at the start keeps the whole network in the right order:

    model = model.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)

When it does not help:
Nothing is convolved, or the network is channels-last already. Ops that do not know the layout turn
it back: then the copies only move elsewhere, and those ops are what to look at.

Risk:
None for the results beyond rounding. Code that calls `.view` on activations or relies on
`.is_contiguous()` must be looked at.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.device_time import of_class, time_of
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step
from findwall.attribute.whatif import gone, to_floor
from findwall.attribute.workmodel.arguments import Arguments
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change

MOVES = ("layout-copies", "slow-kernels", "unfused-pointwise")
IMAGE_DIMS = 4  # batch, channels, height and width
OPS_ABOVE = 3  # searched for a convolution, innermost first. Chosen by hand, not calibrated.
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)


def advise(facts: Facts) -> Outcome:
    convolved = time_of(facts, np.flatnonzero(of_class(facts, "conv")))
    layouts = _layouts(facts)
    if convolved <= 0 and not layouts:
        return NoUse("there are no convolutions in this step")
    if layouts and sum(layouts) > MAJORITY_SHARE * len(layouts):
        return NoUse("the convolutions already read channels-last tensors")
    turned = facts.atoms_of("layout-copies")
    inside = np.concatenate([_under_convolution(facts, cause) for cause in MOVES[1:]])
    if time_of(facts, turned) + time_of(facts, inside) <= 0:
        return NoUse("no layout copy and no slow convolution is left to move")
    copied = time_of(facts, turned)
    between = (
        f"leave out every `.contiguous()` and `.permute` between: {a_step(copied)} only turn tensors round"
        if copied > 0
        else "the convolutions read the other layout now"
    )
    return use(
        f"`model.to(memory_format=torch.channels_last)`, and the same for its input; {between}.",
        _best(facts),
    )


def _best(facts: Facts) -> Change:
    """No tensor is turned round, and what reads images (norms and pooling too) runs at its floor."""
    turned = facts.atoms_of("layout-copies")
    return gone(facts, turned) + to_floor(facts, np.flatnonzero(~of_class(facts, "optimizer", "memcpy")))


def _layouts(facts: Facts) -> list[bool]:
    """For each distinct input of a convolution whether it is channels-last already."""
    events = facts.timeline.events
    ops = facts.timeline.rows(Kind.OP)
    names = np.array([facts.timeline.names.index(name) for name in _present(facts)], np.int64)
    ops = ops[np.isin(events.name[ops], names)]
    found = []
    for inputs_id in np.unique(events.inputs[ops]).tolist():
        inputs = facts.timeline.details.inputs_of(inputs_id)
        tensor = Arguments(inputs).tensor(0) if inputs is not None else None
        if tensor is not None and len(tensor.dims) >= IMAGE_DIMS and tensor.strides is not None:
            found.append(tensor.strides[1] == 1 and tensor.dims[1] > 1)
    return found


def _present(facts: Facts) -> list[str]:
    known = ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::_convolution")
    return [name for name in known if name in facts.timeline.names]


def _under_convolution(facts: Facts, cause: str) -> I64:
    """Atoms of a cause that a convolution, or the backward of one, launched."""
    atoms = facts.atoms_of(cause)
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    verdicts: dict[int, bool] = {}
    for op in np.unique(ops).tolist():
        around = [op, *facts.links.ancestors(op)[:OPS_ABOVE]] if op >= 0 else []
        verdicts[op] = any(_CONVOLUTION.search(facts.timeline.name_of(row)) for row in around)
    found: I64 = atoms[np.array([verdicts[op] for op in ops.tolist()], bool)]
    return found


FIX = Fix(MOVES, "safe", advise, tried=9)
