"""How the images that convolutions read lie in memory: channels last, or the default order."""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts
from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.structure.links import nearest

IMAGE_DIMS = 4  # batch, channels, height and width
_CONVOLUTIONS = ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::_convolution")
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)


def convolves(facts: Facts) -> bool:
    """Whether the step convolves anything."""
    return bool(layouts(facts)) or bool(facts.own[of_class(facts, "conv")].sum() > 0)


def channels_last(facts: Facts) -> bool:
    """Whether most convolutions are known to read channels-last tensors."""
    found = layouts(facts)
    return bool(found) and sum(found) > MAJORITY_SHARE * len(found)


def on_images(facts: Facts) -> bool:
    """Whether some convolution reads images, of four dims or more, as far as the trace tells."""
    sizes = [len(tensor.dims) for tensor in _inputs(facts)]
    return not sizes or max(sizes) >= IMAGE_DIMS


def layouts(facts: Facts) -> list[bool]:
    """For each distinct input of a convolution whether it is channels-last already."""
    return [
        tensor.strides[1] == 1 and tensor.dims[1] > 1
        for tensor in _inputs(facts)
        if len(tensor.dims) >= IMAGE_DIMS and tensor.strides is not None
    ]


def _inputs(facts: Facts) -> list[Tensor]:
    """What convolutions read, each distinct input once."""
    events, names = facts.timeline.events, facts.timeline.names
    ops = facts.timeline.rows(Kind.OP)
    known = np.array([names.index(name) for name in _CONVOLUTIONS if name in names], np.int64)
    ops = ops[np.isin(events.name[ops], known)]
    found = (facts.timeline.details.inputs_of(one) for one in np.unique(events.inputs[ops]).tolist())
    tensors = (Arguments(inputs).tensor(0) for inputs in found if inputs is not None)
    return [tensor for tensor in tensors if tensor is not None]


def under_convolution(facts: Facts) -> Bool:
    """Atoms that a convolution, or the backward of one, launched."""
    events = facts.timeline.events
    marked = np.array([bool(_CONVOLUTION.search(name)) for name in facts.timeline.names] or [False], bool)
    around = nearest(facts.timeline, facts.links.parent, events.is_kind(Kind.OP) & marked[events.name])
    op = facts.kernels.op[facts.atoms.index]
    found: Bool = (op >= 0) & (around[np.maximum(op, 0)] >= 0)
    return found


def slow_convolutions(facts: Facts) -> I64:
    """Convolutions well under the ceiling, longest first."""
    slow = facts.atoms_of("slow-kernels")
    conv = of_class(facts, "conv") | (under_convolution(facts) & of_class(facts, *MATRIX_CLASSES))
    found: I64 = slow[conv[slow]]
    return found
