"""What a kernel's own name and launch shape give away, where no op's shapes were recorded."""

from __future__ import annotations

import functools
import re

import msgspec
import numpy as np

from findwall.model.events import Details, Events, Inputs, Kind, Launch, Timeline
from findwall.model.intervals import I64
from findwall.step.kernel_classes import classify, math_in_name
from findwall.step.kernel_names.name_parts import item_size_in_name
from findwall.step.step_facts import Links
from findwall.work.op_arguments import Work
from findwall.work.op_families import matmul, pointwise, reduction
from findwall.work.op_families.convolution import without_namespace

_OPERANDS = re.compile(r"array<char\*, (\d+)")
_UNROLLED = re.compile(
    r"(?:elementwise_kernel|elementwise_kernel_manual_unroll|index_elementwise_kernel)<(\d+), (\d+)"
)
# Elements a thread of a vectorised kernel takes: 4 in older launchers, 8 in those with 8-wide loads (torch
# 2.11).
_NARROW_ELEMENTS, _WIDE_ELEMENTS = 4, 8
_USUAL_OPERANDS = 2  # one read, one written: where the name does not say


def elementwise_work(kernel_name: str, launch: Launch | None, wide: bool = False) -> Work | None:
    """A TensorIterator kernel: blocks times elements a block, times the operands' size."""
    if (
        launch is None
        or launch.grid is None
        or launch.block is None
        or "elementwise_kernel" not in kernel_name
    ):
        return None
    size = item_size_in_name(kernel_name)
    if size is None:
        return None
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if blocks <= 0:  # written where the grid is not known
        return None
    unrolled = _UNROLLED.search(kernel_name)
    if unrolled:
        elements = blocks * int(unrolled.group(1)) * int(unrolled.group(2))
    else:
        vectorised = "vectorized_elementwise_kernel" in kernel_name
        elements = blocks * launch.block[0] * (_WIDE_ELEMENTS if wide and vectorised else _NARROW_ELEMENTS)
    operands = _OPERANDS.search(kernel_name)
    count = int(operands.group(1)) if operands else _USUAL_OPERANDS
    return Work(
        flops=2.0 * elements,
        read_bytes=float(elements * size * (count - 1)),
        write_bytes=float(elements * size),
        math="fp32",
        cast="LoadWithCast" in kernel_name and "copy" in kernel_name,
    )


# -- number formats of an op's tensors, where shapes were recorded without them ---------------------------
#
# Nsight Systems' exports carry shapes alone. A product's kernel is called after what it multiplies, and one
# of torch's own after what it reads and writes, unless it converts on the way. Where the names of an op's
# kernels do not agree, or tell nothing, its tensors stay without a type and the op without a model.


BF16, FP16, FP32, FP64 = "c10::BFloat16", "c10::Half", "float", "double"
_TYPES = (BF16, FP16, FP32, FP64)
UNTOLD = -1
# What a name calls a format, and torch its type. What multiplies tf32 reads fp32.
_OF_PRODUCT = {"bf16": BF16, "fp16": FP16, "fp32": FP32, "tf32": FP32, "fp64": FP64}
_NAMED = re.compile(r"(bfloat16|__nv_bfloat16|\bbf16\b)|(c10::half|__half|\bhalf\b)|(\bfloat\b)|(\bdouble\b)")
# Copies that torch has a kernel of its own for: from fp32 to what it is named after.
_NARROWING = {"bfloat16_copy_kernel": BF16, "float16_copy_kernel": FP16}
_PRODUCTS = frozenset(op for op in matmul.FORMS if "scaled" not in op and "int" not in op)
_COPIES = frozenset({"clone", "contiguous", "copy_"})
_ROWS = frozenset({"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"})
_SUMS = frozenset({"sum", "mean", "var", "std", "var_mean", "amax", "amin", "norm", "linalg_vector_norm"})
_WHOLE = _PRODUCTS | pointwise.OPS | reduction.NORM_OPS | _COPIES | _ROWS | _SUMS
# Positions of masks among tensors of one type.
_MASKS = {"where": 0, "_s_where": 0, "masked_fill": 1, "masked_fill_": 1, "native_dropout_backward": 1}


def with_kernel_types(timeline: Timeline, links: Links) -> Timeline:
    """The timeline with types beside its shapes, as far as kernels tell them; itself where it has types."""
    if not timeline.details.inputs or any(b'"types"' in raw for raw in timeline.details.inputs):
        return timeline
    told = _told(timeline, links)
    events = timeline.events
    ops = np.flatnonzero((told >= 0) & (events.inputs >= 0))
    if len(ops) == 0:
        return timeline
    kinds = len(_TYPES) ** 2
    keys = (
        events.name[ops].astype(np.int64) * (len(timeline.details.inputs) + 1) + events.inputs[ops]
    ) * kinds
    distinct, first, of_op = np.unique(keys + told[ops], return_index=True, return_inverse=True)
    known = list(timeline.details.inputs)
    places: list[int] = []
    for row, kind in zip(ops[first].tolist(), (distinct % kinds).tolist(), strict=True):
        made = _typed(timeline.name_of(row), timeline.inputs_of(row), kind)
        places.append(int(events.inputs[row]) if made is None else len(known))
        known += [] if made is None else [msgspec.json.encode(made)]
    inputs = events.inputs.copy()
    inputs[ops] = np.array(places, np.int32)[of_op]
    columns = {name: getattr(events, name) for name in events.__struct_fields__} | {"inputs": inputs}
    details = Details(known, timeline.details.launch, timeline.details.extra)
    return msgspec.structs.replace(timeline, events=Events(**columns), details=details)


def _told(timeline: Timeline, links: Links) -> I64:
    """For each op the type that all of its kernels tell: of what it writes, and times their number what it
    reads; -1 where they tell none."""
    events = timeline.events
    rows = timeline.rows(Kind.KERNEL)
    rows = rows[links.op[rows] >= 0]
    found: I64 = np.full(len(events), UNTOLD, np.int64)
    names, of_row = np.unique(events.name[rows], return_inverse=True)
    texts = [timeline.names[int(name)] for name in names]
    short = _short_format(texts)
    product = np.array([_of_product(text) for text in texts], np.int64)[of_row]
    plain = np.array([_of_plain(text, short) for text in texts], np.int64)[of_row]
    multiplies = np.array([without_namespace(name) in _PRODUCTS for name in timeline.names] or [False], bool)
    of_product = multiplies[events.name[links.op[rows]]]
    told = np.where(of_product, product, plain)
    # What adds up the slices of a product tells nothing of its operands, and is not asked.
    asked = (told >= 0) | ~of_product
    ops, kinds = links.op[rows[asked]], told[asked]
    lowest, highest = found.copy(), found.copy()
    lowest[ops] = kinds
    np.minimum.at(lowest, ops, kinds)
    np.maximum.at(highest, ops, kinds)
    agreed = (lowest == highest) & (lowest >= 0)
    found[agreed] = lowest[agreed]
    return found


def _short_format(texts: list[str]) -> str | None:
    """The one 16-bit format that the job's products have; None where there are two, or none."""
    found = {kind for text in texts if (kind := _OF_PRODUCT.get(_math(text) or "")) in (BF16, FP16)}
    return found.pop() if len(found) == 1 else None


@functools.lru_cache(maxsize=4096)
def _math(text: str) -> str | None:
    return math_in_name(text) if classify(text, None, Kind.KERNEL) == "matmul" else None


def _of_product(text: str) -> int:
    kind = _OF_PRODUCT.get(_math(text) or "")
    return UNTOLD if kind is None else _packed(kind, kind)


def _of_plain(text: str, short: str | None) -> int:
    """What a kernel of torch's own writes and reads."""
    name = text.lower()
    for start, kind in _NARROWING.items():
        if start in name:
            return _packed(kind, FP32)
    found = _NAMED.search(name)
    if found is None:
        return UNTOLD
    kind = _TYPES[[group is not None for group in found.groups()].index(True)]
    if "withcast" not in name and "gpu_kernel_impl<" not in name:
        return _packed(kind, kind)
    if "direct_copy" not in name:
        return UNTOLD
    # It writes what it is called after and reads something else: of a job in two formats, the other.
    other = FP32 if kind in (BF16, FP16) else short if kind == FP32 else None
    return UNTOLD if other is None else _packed(kind, other)


def _packed(writes: str, reads: str) -> int:
    return _TYPES.index(writes) + len(_TYPES) * _TYPES.index(reads)


def _typed(op_name: str, inputs: Inputs | None, kind: int) -> Inputs | None:
    """An op's inputs with the types that its kernels have; None where it may have others."""
    name = without_namespace(op_name)
    if inputs is None or name not in _WHOLE:
        return None
    writes, reads = _TYPES[kind % len(_TYPES)], _TYPES[kind // len(_TYPES)]
    if writes != reads and name != "copy_":
        return None
    types: list[str | list[str]] = [reads if dims else "" for dims in inputs.dims]
    if name == "copy_" and types:
        types[0] = writes
    mask = _MASKS.get(name)
    if mask is not None and mask < len(types):
        types[mask] = "bool"
    return Inputs(inputs.dims, types)
