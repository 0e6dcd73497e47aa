"""Bytes without arithmetic: copies, casts, layout changes, concatenation; fills and random numbers."""

from __future__ import annotations

import math
import re

import numpy as np

from findwall.model.events import Timeline
from findwall.model.intervals import F64, I64
from findwall.step.step_facts import Links
from findwall.work.op_arguments import Arguments, Tensor, Work, is_floating, item_size
from findwall.work.op_families import Family

_WHOLE = frozenset(
    {
        "clone",
        "contiguous",
        "flip",
        "roll",
        "rot90",
        "repeat_interleave",
        "to",
        "_to_copy",
        "reshape",
        "channel_shuffle",
        "pixel_shuffle",
        "pixel_unshuffle",
        "_nested_tensor_from_mask",
        "triu",
        "tril",
        "triu_",
        "tril_",
        "_reshape_alias_copy",
        "as_strided_copy",
        "view_copy",
    }
)
# Each number with all before it along a dimension; the extremes with the places where they stand.
_EXTREMES = frozenset({"cummax", "cummin", "_cummax_helper", "_cummin_helper"})
SCANS = _EXTREMES | {"cumsum", "cumsum_", "cumprod", "cumprod_", "logcumsumexp", "_logcumsumexp"}
_INDEX_BYTES = 8
_LISTS = frozenset({"cat", "_cat", "stack", "concat", "hstack", "vstack", "_foreach_copy_unfused"})
_SPLITS = frozenset({"split_with_sizes_copy", "chunk_cat", "_chunk_cat", "unbind_copy", "split_copy"})
# Windows of images taken apart into columns, and columns added up to images again.
_COLUMNS = frozenset({"im2col", "col2im"})
OPS = frozenset({"copy_", "_copy_from"}) | _WHOLE | SCANS | _LISTS | _SPLITS | _COLUMNS


def movement_work(op: str, arguments: Arguments) -> Work | None:
    if op in ("copy_", "_copy_from"):
        return _copy(*arguments.needed(*((1, 0) if op == "copy_" else (0, 1))))
    if op in _LISTS:
        return _joined(arguments)
    (x,) = arguments.needed(0)
    if op in _COLUMNS:
        return _windows(op, x, arguments)
    if op in SCANS:
        return Work(read_bytes=x.nbytes, write_bytes=float(x.elements * _scanned_bytes(op, x)))
    return Work(read_bytes=x.nbytes, write_bytes=float(x.elements * x.size))


def _windows(op: str, x: Tensor, arguments: Arguments) -> Work | None:
    """The images once, the columns once: what several windows share comes from a cache."""
    if op == "im2col":
        columns = columns_of(arguments)
        return None if columns is None else Work(0.0, x.nbytes, float(math.prod(columns) * x.size))
    window, extent = arguments.numbers(2), arguments.numbers(1)
    if not window or not extent or len(x.dims) < 2:
        return None
    images = x.elements / x.dims[-1] / math.prod(window) * math.prod(extent)
    return Work(float(x.elements), x.nbytes, images * x.size, "fp32")


def columns_of(arguments: Arguments) -> tuple[int, ...] | None:
    """The shape of what im2col(x, window, dilation, padding, stride) makes; None where that is not known."""
    x, numbers = arguments.tensor(0), [arguments.numbers(at) for at in (1, 2, 3, 4)]
    if x is None or len(x.dims) not in (3, 4) or any(one is None or len(one) != 2 for one in numbers):
        return None
    window, dilation, padding, stride = ([*one] for one in numbers if one is not None)
    places = 1
    for size, k, d, p, s in zip(x.dims[-2:], window, dilation, padding, stride, strict=True):
        places *= max((size + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1, 0)
    return (*x.dims[:-3], x.dims[-3] * math.prod(window), places)


def _scanned_bytes(op: str, x: Tensor) -> int:
    """Of one number of the result: sums and products of integers are of 64 bits."""
    if op in _EXTREMES:
        return x.size + _INDEX_BYTES
    return x.size if is_floating(x.dtype) else max(x.size, _INDEX_BYTES)


def _copy(source: Tensor, target: Tensor) -> Work:
    # A transpose reads whole sectors, but neighbours in a cached tile share them.
    whole = float(max(source.elements, 1) * source.size)
    return Work(
        read_bytes=min(source.nbytes, whole) if source.elements <= target.elements else source.nbytes,
        write_bytes=float(target.elements * target.size),
        cast=source.dtype != target.dtype,
    )


def _joined(arguments: Arguments) -> Work | None:
    """Concatenation: every byte once in, once out. Types of list members are rarely recorded."""
    parts = arguments.tensor_list(0)
    if not parts:
        return None
    total = float(sum(part.elements * part.size for part in parts))
    types = arguments.inputs.types
    typed = bool(types) and isinstance(types[0], list)
    return Work(read_bytes=total, write_bytes=total, type_from_kernel=not typed)


# -- values out of nothing: fills, ranges, random numbers -------------------------------------------------


_FILL = frozenset(
    {"fill_", "zero_", "ones_like", "zeros_like", "full_like", "empty_like", "_fill_mem_eff_dropout_mask_"}
)
_RANDOM = frozenset(
    {"uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "geometric_"}
)
_RANDOM |= {"cauchy_", "rand_like", "randn_like", "randint_like", "bernoulli", "trunc_normal_"}
# Of `zeros` or `arange` the fill or the range inside records the result itself, if anything does.
CREATION_OPS = _FILL | _RANDOM


def creation_work(op: str, arguments: Arguments) -> Work | None:
    (x,) = arguments.needed(0)
    weight = 25.0 if op in _RANDOM else 0.0
    return Work(flops=weight * x.elements, write_bytes=float(x.elements * x.size), math="fp32")


# -- messages between ranks -------------------------------------------------------------------------------


def message_bytes(timeline: Timeline, links: Links, rows: I64) -> F64:
    """Bytes of each device row's message, the larger of what goes in and comes out; NaN unknown."""
    return np.array([_bytes(timeline, links, row) for row in rows.tolist()], np.float64)


def _bytes(timeline: Timeline, links: Links, row: int) -> float:
    op = int(links.op[row])
    for holder in (row, op):
        extra = timeline.extra_of(holder) if holder >= 0 else None
        if extra is not None and extra.dtype:
            size = item_size(extra.dtype)
            elements = max(extra.in_elements or 0, extra.out_elements or 0)
            if size and elements:
                return float(size * elements)
    around = [op, *_ranges_that_take_it_whole(timeline, links, row)]
    every = (Arguments(timeline.inputs_of(one)).tensors() for one in around)
    tensors = next((found for found in every if found), [])
    return max((float(tensor.elements * tensor.size) for tensor in tensors), default=np.nan)


# Collectives whose message is what goes in: a gather's is larger.
_TAKES_WHOLE = re.compile(r"^(?:nccl|rccl):_?(?:all_reduce|allreduce|reduce|reduce_scatter\w*|broadcast)$")


def _ranges_that_take_it_whole(timeline: Timeline, links: Links, row: int) -> list[int]:
    """The library's own ranges around a launch: their inputs are the message, where the op's are a list."""
    launch = int(links.launch[row])
    around = links.ancestors(launch) if launch >= 0 else []
    return [one for one in around if _TAKES_WHOLE.match(timeline.name_of(one))]


FAMILY = Family({**dict.fromkeys(CREATION_OPS, creation_work), **dict.fromkeys(OPS, movement_work)})
