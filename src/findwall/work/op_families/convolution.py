"""Convolutions: forward, and both halves of the backward.

FLOPs are those of the direct method: two for every output element, input channel of its group and tap.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from findwall.model.events import Inputs, Kind, Timeline
from findwall.work.op_arguments import HALF_BYTES, VECTOR_ELEMENTS, Arguments, Part, Tensor, Work
from findwall.work.op_families import Family

_INPUT_WORDS = ("dgrad", "bwd_data", "backward_data", "igemm_bwd", "_bwd_gtc")
_WEIGHT_WORDS = ("wgrad", "bwd_weight", "backward_filter", "igemm_wrw", "_wrw_")


class _Layout(msgspec.Struct, frozen=True):
    """Positions of an op's arguments; -1 for one it does not take."""

    x: int
    weight: int
    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int = -1
    always_transposed: bool = False


_FORWARD: dict[str, _Layout] = {
    "cudnn_convolution": _Layout(0, 1, 3, 2, 4, 5),
    "cudnn_convolution_transpose": _Layout(0, 1, 4, 2, 5, 6, always_transposed=True),
    "cudnn_convolution_relu": _Layout(0, 1, 3, 4, 5, 6),
    "cudnn_convolution_add_relu": _Layout(0, 1, 5, 6, 7, 8),
    "miopen_convolution": _Layout(0, 1, 4, 3, 5, 6),
    "miopen_depthwise_convolution": _Layout(0, 1, 4, 3, 5, 6),
    "miopen_convolution_transpose": _Layout(0, 1, 5, 3, 6, 7, always_transposed=True),
    "convolution": _Layout(0, 1, 3, 4, 5, 8, 6),
    "convolution_overrideable": _Layout(0, 1, 3, 4, 5, 8, 6),
    "_convolution": _Layout(0, 1, 3, 4, 5, 8, 6),
    "conv1d": _Layout(0, 1, 3, 4, 5, 6),
    "conv2d": _Layout(0, 1, 3, 4, 5, 6),
    "conv3d": _Layout(0, 1, 3, 4, 5, 6),
    "_conv_depthwise2d": _Layout(0, 1, 4, 5, 6, -1),
    "conv_depthwise3d": _Layout(0, 1, 4, 5, 6, -1),
    "thnn_conv2d": _Layout(0, 1, 4, 5, -1, -1),
    "_slow_conv2d_forward": _Layout(0, 1, 4, 5, -1, -1),
    "slow_conv_dilated2d": _Layout(0, 1, 4, 5, 6, -1),
}
# Older generations have an op a half inside an op of the whole; only that one, (x, gradient, weight), has s
WHOLE_BACKWARD = frozenset({"cudnn_convolution_backward", "miopen_convolution_backward"})
HALVES = frozenset(f"{name}_{half}" for name in WHOLE_BACKWARD for half in ("input", "weight"))
_BACKWARD = frozenset({"convolution_backward", "convolution_backward_overrideable"})
FORWARD = frozenset(_FORWARD)
OPS = FORWARD | HALVES | _BACKWARD


def convolution_work(op: str, arguments: Arguments) -> Work | None:
    if op in _FORWARD:
        return _forward(_FORWARD[op], arguments)
    if op in HALVES:
        return _half(op, arguments)
    return _backward(arguments)


def _forward(at: _Layout, arguments: Arguments) -> Work | None:
    x, weight = arguments.needed(at.x, at.weight, rank=3)
    transposed = at.always_transposed or arguments.flag(at.transposed) is True
    spatial = _recorded_extents(arguments) or _result_extents(at, arguments, x, weight, transposed)
    if spatial is None:
        return None
    groups = int(arguments.number(at.groups) or 1) if at.groups >= 0 else 1
    channels = weight.dims[1] * groups if transposed else weight.dims[0]
    result = float(x.dims[0] * channels * math.prod(spatial) * x.size)
    macs = _macs(x, weight, x.dims[0] * weight.dims[0] * math.prod(spatial), transposed)
    return Work(
        flops=2.0 * macs,
        read_bytes=x.nbytes * _visited(arguments.numbers(at.stride), weight) + weight.nbytes,
        write_bytes=result,
        math=x.math,
        tensor_core_able=True,
        misaligned=_misaligned(x, weight),
        workspace=result * 4 / x.size,
        layouts=(x.nbytes, weight.nbytes),
        results=(result,),
        padded=(x.nbytes, weight.nbytes),
    )


def _macs(x: Tensor, weight: Tensor, result: int, transposed: bool) -> float:
    """Weight is [out, in / groups, taps...]; transposed it is [in, out / groups, taps...]."""
    taps = math.prod(weight.dims[2:])
    if transposed:
        return float(x.elements * weight.dims[1] * taps)
    return float(result * weight.dims[1] * taps)


def _result_extents(
    at: _Layout, arguments: Arguments, x: Tensor, weight: Tensor, transposed: bool
) -> list[int] | None:
    kernel, extents = weight.dims[2:], x.dims[2:]
    stride = _spread(arguments.numbers(at.stride), len(kernel))
    padding = _spread(arguments.numbers(at.padding), len(kernel))
    dilation = _spread(arguments.numbers(at.dilation) if at.dilation >= 0 else [1], len(kernel))
    if stride is None or padding is None or dilation is None:
        return None
    result = []
    for size, tap, step, pad, spread in zip(extents, kernel, stride, padding, dilation, strict=False):
        reach = spread * (tap - 1)
        result.append(
            (size - 1) * step - 2 * pad + reach + 1
            if transposed
            else (size + 2 * pad - reach - 1) // step + 1
        )
    return result if all(size > 0 for size in result) else None


def _recorded_extents(arguments: Arguments) -> list[int] | None:
    """Without recorded strides the result may have been found elsewhere and put after x and weight."""
    result = arguments.tensor(2) if len(arguments) == 3 and not arguments.inputs.concrete else None
    return list(result.dims[2:]) if result is not None else None


def _visited(stride: list[int] | None, weight: Tensor) -> float:
    """The share of the input that a stride wider than the kernel does not skip."""
    steps = _spread(stride, len(weight.dims) - 2) or []
    return math.prod(min(1.0, tap / max(step, 1)) for tap, step in zip(weight.dims[2:], steps, strict=False))


def _spread(values: list[int] | None, count: int) -> list[int] | None:
    if not values:
        return None
    return values * count if len(values) == 1 else values


def _half(op: str, arguments: Arguments) -> Work:
    """One half, from the inputs of the whole: (x, gradient, weight)."""
    x, gradient, weight = arguments.needed(0, 1, 2, rank=3)
    given, result = (weight, x) if op.endswith("input") else (x, weight)
    return Work(
        flops=2.0 * _macs(x, weight, gradient.elements, False),
        read_bytes=gradient.nbytes + given.nbytes,
        write_bytes=result.nbytes,
        math=gradient.math,
        tensor_core_able=True,
        misaligned=_misaligned(x, weight),
        layouts=(gradient.nbytes, given.nbytes),
        results=(result.nbytes,),
    )


def _backward(arguments: Arguments) -> Work:
    """(gradient, x, weight, bias sizes, stride, padding, dilation, transposed, ..., groups, mask)."""
    gradient, x, weight = arguments.needed(0, 1, 2, rank=3)
    transposed = arguments.flag(7) is True
    macs = _macs(x, weight, gradient.elements, transposed)
    mask = arguments.flags(10) or [True, True, False]
    seen = x.nbytes * (1.0 if transposed else _visited(arguments.numbers(4), weight))
    parts = []
    if mask[0]:
        parts.append(Part(_INPUT_WORDS, 2.0 * macs, gradient.nbytes + weight.nbytes + x.nbytes))
    if len(mask) > 1 and mask[1]:
        parts.append(Part(_WEIGHT_WORDS, 2.0 * macs, gradient.nbytes + seen + weight.nbytes))
    return Work(
        flops=sum(part.flops for part in parts),
        read_bytes=sum(part.nbytes for part in parts),
        math=gradient.math,
        tensor_core_able=True,
        misaligned=_misaligned(x, weight),
        parts=tuple(parts),
        workspace=weight.elements * 4.0,
        layouts=_laid_out(mask, gradient, x, weight),
        results=tuple(t.nbytes for t, wanted in zip((x, weight), mask, strict=False) if wanted),
        padded=(x.nbytes, weight.nbytes),
    )


def _laid_out(mask: list[bool], gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[float, ...]:
    """The input's half reads gradient and weight, the weight's half gradient and input."""
    first = (gradient.nbytes, weight.nbytes) if mask[0] else ()
    second = (gradient.nbytes, x.nbytes) if len(mask) > 1 and mask[1] else ()
    return (*first, *second)


def _misaligned(x: Tensor, weight: Tensor) -> tuple[str, ...]:
    """Channels that are no multiple of 8. A first layer's few colours cannot be helped."""
    if x.size != HALF_BYTES or weight.dims[1] < VECTOR_ELEMENTS:
        return ()
    found = []
    if weight.dims[1] % VECTOR_ELEMENTS:
        found.append(f"C:{weight.dims[1]}")
    if weight.dims[0] % VECTOR_ELEMENTS:
        found.append(f"K:{weight.dims[0]}")
    return tuple(found)


# -- filters -----------------------------------------------------------------------------------------------

LEAST_WINDOW = 5  # of two sides at least: 25 products against 10


class Filter(msgspec.Struct, frozen=True):
    """A convolution that filters each channel by itself, over a window of several dimensions."""

    x: Tensor  # what is filtered
    weight: tuple[int, ...]  # [channels, 1, sides...]
    result_bytes: float
    backward: bool
    learns: bool  # its weight gets a gradient, or nobody recorded whether it does

    @property
    def window(self) -> tuple[int, ...]:
        return self.weight[2:]


def filter_of(op_name: str, inputs: Inputs | None) -> Filter | None:
    """None: another op, channels that are mixed, a small window, or nothing recorded."""
    op, arguments = without_namespace(op_name), Arguments(inputs)
    if op in _FORWARD and not _FORWARD[op].always_transposed:
        at = _FORWARD[op]
        x, weight, learns = arguments.tensor(at.x), arguments.tensor(at.weight), False
        turned = arguments.flag(at.transposed) is True
    elif op in _BACKWARD | HALVES | WHOLE_BACKWARD:
        x, weight = arguments.tensor(1 if op in _BACKWARD else 0), arguments.tensor(2)
        mask = arguments.flags(10) if op in _BACKWARD else None
        learns, turned = mask is None or mask[1:2] != [False], arguments.flag(7) is True
    else:
        return None
    if x is None or weight is None or turned or not _filters(x, weight):
        return None
    return Filter(x, weight.dims, _result_bytes(op, arguments, x), op not in _FORWARD, learns)


def _filters(x: Tensor, weight: Tensor) -> bool:
    """Whether each channel has one window, of two dimensions at least that are not small."""
    if len(weight.dims) < 4 or len(x.dims) != len(weight.dims) or weight.dims[:2] != (x.dims[1], 1):
        return False
    return sum(side >= LEAST_WINDOW for side in weight.dims[2:]) > 1


def _result_bytes(op: str, arguments: Arguments, x: Tensor) -> float:
    """As large as what is filtered, where nobody recorded otherwise."""
    if op in _FORWARD:
        work = _forward(_FORWARD[op], arguments)
        return work.write_bytes if work is not None else x.nbytes
    gradient = arguments.tensor(0 if op in _BACKWARD else 1)
    return gradient.nbytes if gradient is not None else x.nbytes


# -- traces without scalars: a result is read off its gradient in the backward pass -----------------------


def without_namespace(name: str) -> str:
    return name.rsplit("::", 1)[-1]


class Results:
    """Shapes (x, weight) to the one result they give anywhere in the trace."""

    def __init__(self, timeline: Timeline) -> None:
        self._found: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}
        wanted = [at for at, name in enumerate(timeline.names) if without_namespace(name) in WHOLE_BACKWARD]
        if not wanted:
            return
        rows = timeline.rows(Kind.OP)
        rows = rows[np.isin(timeline.events.name[rows], wanted)]
        for index in np.unique(timeline.events.inputs[rows]).tolist():
            self._learn(timeline.details.inputs_of(index))

    def _learn(self, inputs: Inputs | None) -> None:
        if inputs is None or len(inputs.dims) < 3:
            return
        x, gradient, weight = map(inputs.shape, range(3))
        known = self._found.setdefault((x, weight), gradient)
        if known != gradient:  # the same shapes at two strides: it cannot be told which
            self._found[(x, weight)] = None

    def completed(self, op_name: str, inputs: Inputs | None) -> Inputs | None:
        """A forward convolution's inputs with its result after them, where that is known."""
        if inputs is None or inputs.concrete or without_namespace(op_name) not in FORWARD:
            return None
        if len(inputs.dims) < 2 or len(inputs.types) < 2:
            return None
        result = self._found.get((inputs.shape(0), inputs.shape(1)))
        if result is None:
            return None
        return Inputs(dims=[*inputs.dims[:2], list(result)], types=[*inputs.types[:2], inputs.types[0]])


FAMILY = Family(dict.fromkeys(OPS, convolution_work))
