"""The wall of an op before anyone runs it: its work by the work model, beside a device's ceilings.

Bytes are the least there can be: each operand is read once, the result is written once. What a large product
reads again because it does not stay in cache is left out. So more rows meet the walls in one order: overhead,
then bandwidth, then compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from findwall.causes.budget import LEAST_KERNEL_NS
from findwall.errors import InputError
from findwall.facts.op_shapes import padded
from findwall.model.catalogue import WALL_OF
from findwall.model.events import Inputs
from findwall.model.machine import Ceilings
from findwall.units import NS_PER_S
from findwall.work.op_arguments import Work, item_size
from findwall.work.op_families.pointwise import OPERATIONS
from findwall.work.op_work import op_work
from findwall.work.work_facts import fast_format

# Formats as people write them, and the type of a tensor that holds them.
FORMATS = {
    "fp64": "double",
    "fp32": "float",
    "tf32": "float",
    "bf16": "c10::BFloat16",
    "fp16": "c10::Half",
    "fp8": "c10::Float8_e4m3fn",
    "int8": "signed char",
}
LEAST_KERNEL_S = LEAST_KERNEL_NS / NS_PER_S
MOST_GROWN = 2**50  # rows: a wall that has not changed by then never does

Dims = tuple[int, ...]


class Question(msgspec.Struct, frozen=True):
    """An op, its sizes and its format, as a person asks for them."""

    op: str
    dims: Dims
    format: str
    reads: int = 1  # tensors that a pointwise op reads

    @property
    def item(self) -> int:
        """Bytes of one number."""
        return item_size(FORMATS[self.format]) or 0


class Op(msgspec.Struct, frozen=True):
    """One op that can be asked about."""

    shape: str  # how its sizes are written
    example: str
    ranks: tuple[int, int]  # the fewest and the most sizes
    work: Callable[[Question], Work | None]
    unit: str  # what there are more of as it grows
    counted: str  # what the bytes are; {reads} stands for the question's
    grows: int | None = 0  # position of the size that grows; None: all of it as one
    on_matrix_units: bool = False  # tensor or matrix cores do its arithmetic, in its own format
    shared: str = ""  # what is read once for all of them, and so costs each of them less
    lies_along: tuple[int, ...] = ()  # positions of the sizes that 16-bit rows must fit
    formats: tuple[str, ...] = tuple(FORMATS)


class Region(msgspec.Struct, frozen=True):
    """From how many rows on (images, tokens, ...) an op meets which wall."""

    first: int
    wall: str


class Roofline(msgspec.Struct, frozen=True):
    """Work against one pair of ceilings. Unknown vector arithmetic is None: bytes alone bound it then."""

    compute_s: float | None
    memory_s: float
    ridge: float | None  # FLOP/byte


class Paper(msgspec.Struct, frozen=True):
    """Everything there is to say about an op on paper. Seconds, bytes, FLOPs."""

    question: Question
    ceilings: Ceilings
    math: str  # the format its arithmetic is done in, which picks the ceiling
    flops: float
    nbytes: float
    achievable: Roofline
    spec: Roofline | None
    cause: str
    regions: tuple[Region, ...]  # of the padded sizes, where there are any
    aligned: Question | None = None  # the same with its sizes padded, where 16-bit rows do not fit
    fast: str | None = None  # the format in which tensor cores could do fp32 work

    @property
    def intensity(self) -> float:
        return self.flops / self.nbytes

    @property
    def work_s(self) -> float:
        """The larger of the two times."""
        return _work_s(self.achievable)

    @property
    def floor_s(self) -> float:
        return max(self.work_s, LEAST_KERNEL_S)

    @property
    def wall(self) -> str:
        return WALL_OF[self.cause]


def on_paper(question: Question, ceilings: Ceilings) -> Paper:
    """The wall of an op on a device; InputError where a ceiling it needs is unknown."""
    op, work = OPS[question.op], work_of(question)
    math_type = _math(op, question)
    achievable = _roofline(work, ceilings.flops.get(math_type), ceilings.bandwidth)
    if achievable is None or (achievable.compute_s is None and op.on_matrix_units):
        raise _no_ceiling(ceilings, math_type)
    aligned = _aligned(op, question, work)
    fast = fast_format(ceilings) if op.on_matrix_units and math_type == "fp32" else None
    return Paper(
        question=question,
        ceilings=ceilings,
        math=math_type,
        flops=work.flops,
        nbytes=work.nbytes,
        achievable=achievable,
        spec=_roofline(work, ceilings.spec_flops.get(math_type), ceilings.spec_bandwidth),
        cause=_cause(achievable, aligned is not None, fast is not None),
        regions=_regions(op, aligned or question, ceilings, math_type),
        aligned=aligned,
        fast=fast,
    )


def work_of(question: Question) -> Work:
    """FLOPs and bytes, whatever the device."""
    work = OPS[question.op].work(question)
    if work is None:
        raise InputError(f"there is no work model for {question.op} of these sizes", "Check the sizes.")
    return work


def _math(op: Op, question: Question) -> str:
    """Vector units compute in fp32, or in fp64, whatever format the data lies in."""
    if op.on_matrix_units:
        return question.format
    return "fp64" if question.format == "fp64" else "fp32"


def _roofline(work: Work, flops: float | None, bandwidth: float | None) -> Roofline | None:
    if not bandwidth:
        return None
    memory_s = work.nbytes / bandwidth
    return (
        Roofline(work.flops / flops, memory_s, flops / bandwidth) if flops else Roofline(None, memory_s, None)
    )


def _work_s(roofline: Roofline) -> float:
    return max(roofline.compute_s or 0.0, roofline.memory_s)


def _no_ceiling(ceilings: Ceilings, math_type: str) -> InputError:
    known = [name for name in FORMATS if name in ceilings.flops]
    what = f"the {math_type} FLOP/s" if ceilings.bandwidth else "the memory bandwidth"
    hint = "Run `findwall ceilings` on a machine that has one, or name another GPU."
    if known and ceilings.bandwidth:
        hint = f"Ask for a format it has ({', '.join(known)}), or name another GPU."
    return InputError(f"{what} of {ceilings.device} is unknown, or it has none", hint)


def _cause(roofline: Roofline, is_misaligned: bool, has_fast_path: bool) -> str:
    if _work_s(roofline) < LEAST_KERNEL_S:
        return "launch-bound"
    if is_misaligned:
        return "misaligned-shapes"
    if not _is_compute(roofline):
        return "memory-roof"
    return "fast-path-off" if has_fast_path else "at-the-roof"


def _is_compute(roofline: Roofline) -> bool:
    return (roofline.compute_s or 0.0) > roofline.memory_s


# -- where the wall changes ------------------------------------------------------------------------------


def _regions(op: Op, question: Question, ceilings: Ceilings, math_type: str) -> tuple[Region, ...]:
    """The walls in the order in which more rows meet them. More rows never lower time or intensity."""

    def grown(count: int) -> Roofline:
        work = work_of(_with(op, question, count))
        found = _roofline(work, ceilings.flops.get(math_type), ceilings.bandwidth)
        assert found is not None  # `on_paper` has asked for the same ceilings
        return found

    visible = _first(lambda count: _work_s(grown(count)) >= LEAST_KERNEL_S) or MOST_GROWN
    compute = _first(lambda count: _is_compute(grown(count))) or MOST_GROWN
    starts = (("overhead", 1, visible), ("bandwidth", visible, max(visible, compute)))
    regions = [Region(first, wall) for wall, first, end in starts if first < end]
    last = max(visible, compute)
    return (*regions, *([Region(last, "compute")] if last < MOST_GROWN else []))


def _with(op: Op, question: Question, count: int) -> Question:
    """The same op with another number of rows."""
    if op.grows is None:
        return msgspec.structs.replace(question, dims=(count,))
    dims = list(question.dims)
    dims[op.grows] = count
    return msgspec.structs.replace(question, dims=tuple(dims))


def _first(holds: Callable[[int], bool]) -> int | None:
    """The least count for which it holds, where it holds for every larger one too."""
    high = 1
    while not holds(high):
        if high >= MOST_GROWN:
            return None
        high *= 2
    low = high // 2  # does not hold, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def unit_of(question: Question) -> str:
    """What there are more of as the op grows. Where no keys are given there are as many as queries."""
    is_self_attention = question.op == "attention" and len(question.dims) == OPS["attention"].ranks[0]
    return "tokens" if is_self_attention else OPS[question.op].unit


def _aligned(op: Op, question: Question, work: Work) -> Question | None:
    """The question with padded sizes, where the work model says that 16-bit rows do not fit."""
    named = {int(text.rpartition(":")[2]) for text in work.misaligned}
    dims = tuple(
        # A single column is a product with a vector, which has kernels of its own kind.
        padded(size) if at in op.lies_along and size in named and size > 1 else size
        for at, size in enumerate(question.dims)
    )
    return msgspec.structs.replace(question, dims=dims) if dims != question.dims else None


# -- the work of each op ---------------------------------------------------------------------------------


def _recorded(name: str, question: Question, *tensors: Dims) -> Work | None:
    """The work model's answer for an op with these inputs, as a trace would have recorded them."""
    dtype = FORMATS[question.format]
    return op_work(name, Inputs(dims=[list(dims) for dims in tensors], types=[dtype] * len(tensors)))


def _matmul(question: Question) -> Work | None:
    m, k, n = question.dims
    # Narrow operands have ops of their own, which write wider results: 16 bits, and 32 for integers.
    name = {"fp8": "aten::_scaled_mm", "int8": "aten::_int_mm"}.get(question.format, "aten::mm")
    return _recorded(name, question, (m, k), (k, n))


def _conv(question: Question) -> Work | None:
    batch, channels, height, width, filters, r, s = question.dims
    x, weight, result = (
        (batch, channels, height, width),
        (filters, channels, r, s),
        (batch, filters, height, width),
    )
    return _recorded("aten::convolution", question, x, weight, result)


def _attention(question: Question) -> Work | None:
    batch, heads, queries, size, *keys = question.dims
    q, kv = (batch, heads, queries, size), (batch, heads, keys[0] if keys else queries, size)
    return _recorded("aten::_scaled_dot_product_flash_attention", question, q, kv, kv)


def _pointwise(question: Question) -> Work:
    """One result from `reads` tensors: at least one operation, and one for every tensor after the second."""
    elements = float(math.prod(question.dims))
    return Work(
        flops=OPERATIONS["add"] * max(question.reads - 1, 1) * elements,
        read_bytes=question.reads * elements * question.item,
        write_bytes=elements * question.item,
    )


def _norm(question: Question) -> Work | None:
    return _recorded("aten::native_layer_norm", question, question.dims)


def _optimizer(question: Question) -> Work | None:
    """The work model assumes 4 bytes a number; parameters, gradients and both moments share one type."""
    inputs = Inputs(dims=[[list(question.dims)]], types=["TensorList"])
    work = op_work("aten::_fused_adamw_", inputs)
    if work is None:
        return None
    share = question.item / (item_size("float") or 1)
    return Work(work.flops, share * work.read_bytes, share * work.write_bytes)


def _decode(question: Question) -> Work:
    """Every weight is read once and meets every row; what a row itself brings is small beside that."""
    batch, parameters = question.dims
    return Work(flops=2.0 * batch * parameters, read_bytes=float(parameters * question.item))


_ONCE = "each operand read once, the result written once"
OPS: dict[str, Op] = {
    "matmul": Op(
        "MxKxN",
        "8x4096x4096",
        (3, 3),
        _matmul,
        "rows",
        _ONCE,
        on_matrix_units=True,
        shared="weights",
        lies_along=(1, 2),
    ),
    "conv": Op(
        "NxCxHxWxKxRxS",
        "32x64x56x56x128x3x3",
        (7, 7),
        _conv,
        "images",
        f"stride 1, same padding; {_ONCE}",
        on_matrix_units=True,
        shared="weights",
        lies_along=(1, 4),
    ),
    "attention": Op(
        "BxHxSxD[xT]",
        "8x16x2048x128",
        (4, 5),
        _attention,
        "queries",
        "no mask; q, k and v read once, the result written once, no scores",
        grows=2,
        on_matrix_units=True,
    ),
    "pointwise": Op(
        "SHAPE", "8192x4096", (1, 8), _pointwise, "elements", "tensors read: {reads}, written: 1", grows=None
    ),
    "norm": Op("ROWSxWIDTH", "8192x4096", (2, 2), _norm, "rows", "one read, one write"),
    "optimizer": Op(
        "COUNT",
        "7B",
        (1, 1),
        _optimizer,
        "parameters",
        "fused AdamW: parameter, gradient and both moments read, all but the gradient written",
        formats=("fp64", "fp32", "tf32", "bf16", "fp16"),  # 8-bit optimizers mix formats: no single one fits
    ),
    "decode": Op(
        "BATCHxPARAMETERS",
        "8x7B",
        (2, 2),
        _decode,
        "rows",
        "all weights read once, no cache of keys and values",
        on_matrix_units=True,
        shared="weights",
    ),
}
