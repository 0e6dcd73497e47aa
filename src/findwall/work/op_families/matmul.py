"""Matrix products: mm, addmm, bmm, baddbmm, linear, matmul, scaled and integer ones; recurrent networks."""

from __future__ import annotations

import math

import msgspec

from findwall.model.machine import WHOLE_NUMBERS
from findwall.work.op_arguments import (
    HALF_BYTES,
    VECTOR_ELEMENTS,
    Arguments,
    Part,
    Product,
    Tensor,
    Work,
    broadcast,
)
from findwall.work.op_families import Family

# op -> positions of (A, B, added matrix or None, whether B is given transposed as in linear)
FORMS: dict[str, tuple[int, int, int | None, bool]] = {
    "mm": (0, 1, None, False),
    "bmm": (0, 1, None, False),
    "matmul": (0, 1, None, False),
    "_int_mm": (0, 1, None, False),
    "_scaled_mm": (0, 1, None, False),
    "_scaled_mm_v2": (0, 1, None, False),
    "_weight_int8pack_mm": (0, 1, None, True),
    "dot": (0, 1, None, False),
    "vdot": (0, 1, None, False),
    "mv": (0, 1, None, False),
    "addmm": (1, 2, 0, False),
    "addmm_": (1, 2, 0, False),
    "_addmm_activation": (1, 2, 0, False),
    "addmv": (1, 2, 0, False),
    "addmv_": (1, 2, 0, False),
    "baddbmm": (1, 2, 0, False),
    "baddbmm_": (1, 2, 0, False),
    "addbmm": (1, 2, 0, False),
    "linear": (0, 1, 2, True),
    "cutlass_scaled_mm": (1, 2, None, False),
}

AS_FLOATS = "fp32"  # no unit multiplies matrices of whole numbers, and a CPU does it number by number


def matmul_work(op: str, arguments: Arguments) -> Work | None:
    left, right, added, transposed = FORMS[op]
    a, b = arguments.needed(left, right, rank=1)
    product = _product(a, b, transposed)
    if product is None:
        return None
    batch, rows, inner, columns = product
    out_size = _result_size(op, a)
    result = float(batch * rows * columns)
    bias = arguments.tensor(added) if added is not None else None
    return Work(
        flops=2.0 * batch * rows * inner * columns,
        read_bytes=a.nbytes + b.nbytes + (bias.nbytes if bias is not None else 0.0),
        write_bytes=result * out_size,
        math=a.math or (AS_FLOATS if a.dtype.lower() in WHOLE_NUMBERS else None),
        tensor_core_able=True,
        misaligned=_misaligned(a, b, columns),
        product=Product(a.nbytes, b.nbytes, rows, columns, float(inner * a.size)) if batch == 1 else None,
        workspace=4.0 * result,
    )


def _product(a: Tensor, b: Tensor, transposed: bool) -> tuple[int, int, int, int] | None:
    """(batch, M, K, N)."""
    inner = a.dims[-1]
    if len(b.dims) == 1:
        return (1, math.prod(a.dims[:-1]), inner, 1) if b.dims[0] == inner else None
    if transposed:
        return (1, math.prod(a.dims[:-1]), inner, b.dims[-2]) if b.dims[-1] == inner else None
    if b.dims[-2] != inner:
        return None
    if len(b.dims) == 2:  # a stack of rows times one matrix
        return 1, math.prod(a.dims[:-1]), inner, b.dims[-1]
    rows = a.dims[-2] if len(a.dims) > 1 else 1
    return math.prod(broadcast([a.dims[:-2], b.dims[:-2]])), rows, inner, b.dims[-1]


def _result_size(op: str, a: Tensor) -> int:
    if op == "_int_mm":
        return 4
    return 2 if "scaled" in op else a.size


def _misaligned(a: Tensor, b: Tensor, columns: int) -> tuple[str, ...]:
    """Dims that are no multiple of 8 where 16-bit operands are laid out along them.

    What counts is each matrix's leading dimension: the distance between its rows as it lies in memory.
    """
    if a.size != HALF_BYTES or b.size != HALF_BYTES:
        return ()
    found = []
    for name, tensor in (("A", a), ("B", b)):
        leading = _leading(tensor)
        if leading is not None and leading % VECTOR_ELEMENTS:
            found.append(f"{name}:{leading}")
    if columns % VECTOR_ELEMENTS and columns > 1:
        found.append(f"N:{columns}")
    return tuple(found)


def _leading(tensor: Tensor) -> int | None:
    if len(tensor.dims) < 2:
        return None
    if tensor.strides is None:
        return tensor.dims[-1]
    row, column = tensor.strides[-2], tensor.strides[-1]
    if column == 1 and row >= tensor.dims[-1]:
        return row
    return column if row == 1 else None


# -- recurrent networks in one op, as cuDNN and MIOpen have them ------------------------------------------
#
# Every token meets every weight matrix once. The inputs of a whole sequence are one product; the recurrence
# is one small product a step of time, in kernels of its own or in one that keeps the weights on chip.
# Between them the gates are added and squashed.


_FORWARD = frozenset({"_cudnn_rnn", "miopen_rnn"})
_BACKWARD = frozenset({"_cudnn_rnn_backward", "miopen_rnn_backward"})
RECURRENT_OPS = _FORWARD | _BACKWARD
_MATRIX = 2  # dims of a weight; its biases have one
_PASSES_BACK = 2  # the gradient of a product's inputs, and that of its weights
# Kernels that do the whole recurrence, and those that only add gates up: seen in cuDNN 8 and 9.
_PERSISTENT = ("blockpersist", "persistrnn_fp", "persistrnn_bp")
_CELLS = ("elemwisernn", "_elementwise_fp", "_elementwise_bp", "persistrnn_addbias", "hidupdate")


class _Weights(msgspec.Struct, frozen=True):
    inputs: tuple[Tensor, ...]  # what a layer's input meets
    hidden: tuple[Tensor, ...]  # what its own last output meets; projections too


def recurrent_work(op: str, arguments: Arguments) -> Work | None:
    given = arguments.tensor(0)
    weights = _weights(arguments, given)
    if given is None or weights is None or not given.dims:
        return None
    tokens = given.elements // max(given.dims[-1], 1)
    into, within = _tokens_by(tokens, weights.inputs, given), _tokens_by(tokens, weights.hidden, given)
    cells = Part(_CELLS, nbytes=2.0 * tokens * _rows(weights.inputs) * given.size, named_only=True)
    parts = (into, Part(_PERSISTENT, within.flops, within.nbytes))
    if op in _BACKWARD:
        # Back through time first: one of the recurrence's two products. All others are of whole sequences.
        back = Part(_PERSISTENT, within.flops, within.nbytes)
        whole = Part((), _PASSES_BACK * into.flops + within.flops, _PASSES_BACK * into.nbytes + within.nbytes)
        parts = (back, whole)
    return Work(
        flops=sum(part.flops for part in parts),
        read_bytes=sum(part.nbytes for part in parts),
        math=given.math,
        tensor_core_able=True,
        parts=(*parts, cells),
    )


def _weights(arguments: Arguments, given: Tensor | None) -> _Weights | None:
    """The matrices by what they meet. A layer's tensors come together: input's, own, biases, projection."""
    a_layer = arguments.number(2)
    found = arguments.tensor_list(1, default=given.dtype if given is not None else "float")
    if not found or not a_layer or a_layer < _MATRIX or len(found) % int(a_layer):
        return None
    inputs: list[Tensor] = []
    hidden: list[Tensor] = []
    for at, tensor in enumerate(found):
        if len(tensor.dims) == _MATRIX:
            (inputs if at % int(a_layer) == 0 else hidden).append(tensor)
    return _Weights(tuple(inputs), tuple(hidden)) if inputs and hidden else None


def _rows(matrices: tuple[Tensor, ...]) -> int:
    return sum(matrix.dims[0] for matrix in matrices)


def _tokens_by(tokens: int, matrices: tuple[Tensor, ...], given: Tensor) -> Part:
    """Tokens by each of these: what goes in, the weights, what comes out."""
    columns = sum(matrix.dims[1] for matrix in matrices)
    return Part(
        (),
        flops=2.0 * tokens * sum(matrix.elements for matrix in matrices),
        nbytes=tokens * (columns + _rows(matrices)) * given.size + sum(matrix.nbytes for matrix in matrices),
    )


# -- one layer of a recurrent network on cores, in one direction: oneDNN's -----------------------------------

_LAYERS = frozenset({"mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"})


def layer_work(op: str, arguments: Arguments) -> Work:
    given, *weights = arguments.needed(0, 1, 2, rank=_MATRIX)
    tokens = given.elements // max(given.dims[-1], 1)
    inputs, hidden = (_tokens_by(tokens, (one,), given) for one in weights)
    passes = _PASSES_BACK if op.endswith("backward") else 1
    return Work(
        flops=passes * (inputs.flops + hidden.flops),
        read_bytes=passes * (inputs.nbytes + hidden.nbytes),
        math=given.math,
    )


FAMILY = Family(
    {
        **dict.fromkeys(_LAYERS, layer_work),
        **dict.fromkeys(RECURRENT_OPS, recurrent_work),
        **dict.fromkeys(FORMS, matmul_work),
    }
)
