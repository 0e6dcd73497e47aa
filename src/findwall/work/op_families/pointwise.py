"""Element by element: arithmetic, activations, dropout, and their backward ops.

Bytes come from broadcasting and type promotion. Arithmetic is counted in operations of the vector pipe:
a special-function unit is 16 times narrower than the multiply-add pipe, and tanh, erf or a division take
one to three of its results, so a fused chain of them is bound by arithmetic, not by bytes.
"""

from __future__ import annotations

import math

from findwall.work.op_arguments import Arguments, Tensor, Work, broadcast, item_size, promoted
from findwall.work.op_families import Family

# Vector-pipe operations an element: counted by hand from the reasoning above, not calibrated. So are the bare
# numbers in the table.
_CHEAP, _DIVIDE, _EXPONENT, _TANH, _ERF = 2.0, 12.0, 16.0, 30.0, 32.0
# Exponents for which torch calls no pow: a square root, and one or two products.
_SQUARE_ROOT = 0.5
_PRODUCTS = (2.0, 3.0)

# op without a trailing underscore -> (tensors it reads at most, operations an element)
_ARITHMETIC: dict[str, tuple[int, float]] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "rsub", "maximum", "minimum", "fmax", "fmin", "logical_and"), (2, _CHEAP)
    ),
    **dict.fromkeys(("logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"), (2, _CHEAP)),
    **dict.fromkeys(
        ("eq", "ne", "lt", "le", "gt", "ge", "bitwise_left_shift", "bitwise_right_shift"), (2, _CHEAP)
    ),
    **dict.fromkeys(
        ("neg", "abs", "relu", "relu6", "sign", "square", "logical_not", "bitwise_not"), (1, _CHEAP)
    ),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "leaky_relu"), (1, _CHEAP)),
    **dict.fromkeys(
        ("ceil", "floor", "round", "trunc", "frac", "isnan", "isinf", "isfinite", "signbit"), (1, _CHEAP)
    ),
    **dict.fromkeys(
        ("hardsigmoid", "hardswish", "positive", "conj_physical", "real", "imag", "nan_to_num"), (1, _CHEAP)
    ),
    **dict.fromkeys(("lerp", "masked_fill", "dropout", "alpha_dropout"), (3, 4.0)),
    **dict.fromkeys(("threshold_backward", "hardtanh_backward", "leaky_relu_backward"), (2, _CHEAP)),
    **dict.fromkeys(("hardswish_backward", "hardsigmoid_backward", "relu_backward"), (2, 6.0)),
    **dict.fromkeys(("div", "true_divide", "floor_divide", "remainder", "fmod"), (2, _DIVIDE)),
    **dict.fromkeys(("reciprocal", "sqrt", "rsqrt"), (1, _DIVIDE)),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"), (1, _EXPONENT)),
    **dict.fromkeys(
        ("sigmoid", "silu", "softplus", "elu", "selu", "celu", "logit", "log_sigmoid_forward"), (1, 28.0)
    ),
    **dict.fromkeys(
        ("silu_backward", "softplus_backward", "elu_backward", "log_sigmoid_backward"), (2, 32.0)
    ),
    **dict.fromkeys(("sigmoid_backward", "tanh_backward"), (2, 4.0)),
    **dict.fromkeys(("tanh", "atan", "asin", "acos", "sinh", "cosh"), (1, _TANH)),
    **dict.fromkeys(("sin", "cos", "tan"), (1, 28.0)),
    **dict.fromkeys(("erf", "erfc", "gelu"), (1, _ERF)),
    **dict.fromkeys(("erfinv", "lgamma", "digamma", "mish"), (1, 50.0)),
    **dict.fromkeys(("gelu_backward", "mish_backward"), (2, 45.0)),
    **dict.fromkeys(("atan2", "logaddexp", "xlogy"), (2, 40.0)),
    **dict.fromkeys(("where", "addcmul", "_s_where"), (3, 4.0)),
    "addcdiv": (3, 16.0),
    "pow": (2, 40.0),
    "_prelu_kernel": (2, _CHEAP),
    "glu_backward": (2, 32.0),
    "native_dropout_backward": (2, 4.0),
    "masked_scale": (2, 4.0),
    "_masked_scale": (2, 4.0),
}
OPERATIONS: dict[str, float] = {name: weight for name, (_, weight) in _ARITHMETIC.items()}
_TO_BOOL = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor"}
_TO_BOOL |= {"isnan", "isinf", "isfinite", "signbit"}
_WITH_MASK = {"native_dropout", "_fused_dropout", "fused_dropout"}
OPS = frozenset(_ARITHMETIC) | frozenset(f"{name}_" for name in _ARITHMETIC) | _WITH_MASK | {"glu"}


def pointwise_work(op: str, arguments: Arguments) -> Work | None:
    if op in _WITH_MASK:
        return _dropout(arguments)
    if op == "glu":
        return _glu(arguments)
    in_place = op.endswith("_") and op not in _ARITHMETIC
    name = op[:-1] if in_place else op
    arity, weight = _ARITHMETIC[name]
    operands = _operands(arguments, arity)
    if not operands:
        return None
    if name == "addcmul":
        operands = _without_repeat(operands)
    if name == "pow" and arguments.number(1) in (*_PRODUCTS, _SQUARE_ROOT):
        weight = _DIVIDE if arguments.number(1) == _SQUARE_ROOT else _CHEAP
    shape = operands[0].dims if in_place else broadcast([tensor.dims for tensor in operands])
    dtype = operands[0].dtype if in_place else _result_type(name, operands)
    elements = math.prod(shape)
    return Work(
        flops=weight * elements,
        read_bytes=sum(min(tensor.nbytes, elements * float(tensor.size)) for tensor in operands),
        write_bytes=float(elements * (item_size(dtype) or 4)),
        math="fp64" if dtype == "double" else "fp32",
    )


def _operands(arguments: Arguments, arity: int) -> list[Tensor]:
    """The tensors read: at most as many as the op takes, since an `out` argument follows them."""
    found = [tensor for index in range(len(arguments)) if (tensor := arguments.tensor(index)) is not None]
    return found[:arity]


def _without_repeat(operands: list[Tensor]) -> list[Tensor]:
    """A square is written as a product with itself; two factors of one shape may be one tensor."""
    return operands[:2] if len(operands) == 3 and operands[1] == operands[2] else operands


def _result_type(name: str, operands: list[Tensor]) -> str:
    if name in _TO_BOOL:
        return "bool"
    if name in ("where", "_s_where"):
        return promoted(operands[1:] or operands)
    if name == "masked_fill" or name.endswith("_backward"):
        return operands[0].dtype
    return promoted(operands)


def _dropout(arguments: Arguments) -> Work | None:
    """Reads x, writes y and a mask of one byte an element."""
    (x,) = arguments.needed(0)
    return Work(
        flops=20.0 * x.elements, read_bytes=x.nbytes, write_bytes=x.elements * (x.size + 1.0), math="fp32"
    )


def _glu(arguments: Arguments) -> Work | None:
    (x,) = arguments.needed(0)
    return Work(
        flops=16.0 * x.elements, read_bytes=x.nbytes, write_bytes=x.elements * x.size / 2, math="fp32"
    )


# -- kernels that a compiler wrote, by their recorded arguments, outputs among them -----------------------
#
# Each distinct tensor is touched once. A kernel with a single tensor works in place. What the arithmetic
# costs is read off the fused ops in the generated name.


_PREFIXES = ("triton_poi", "triton_red", "triton_per", "triton_for", "triton_mix", "triton_spl")


def is_compiled(namespace: str, name: str) -> bool:
    return not namespace and name.startswith(_PREFIXES)


def compiled_work(name: str, arguments: Arguments) -> Work | None:
    tensors = arguments.tensors()
    if not tensors:
        return None
    largest = max(tensor.elements for tensor in tensors)
    total = sum(min(tensor.nbytes, float(tensor.elements * tensor.size)) for tensor in tensors)
    if len(tensors) == 1:
        total *= 2
    return Work(flops=_operations(name) * largest, read_bytes=float(total), math="fp32")


def _operations(name: str) -> float:
    """Vector operations an element, by the ops whose names the generator joined."""
    words = [word for word in name.split("_fused_", 1)[-1].split("_") if word]
    found: set[str] = set()
    at = 0
    while at < len(words):
        length = next((n for n in (3, 2, 1) if "_".join(words[at : at + n]) in OPERATIONS), 0)
        if length:
            found.add("_".join(words[at : at + length]))
        at += max(length, 1)
    # A backward op recomputes what its forward op beside it needs anyway.
    found -= {name.removesuffix("_backward") for name in found if name.endswith("_backward")}
    return sum(OPERATIONS[name] for name in found) or 2.0


FAMILY = Family(
    dict.fromkeys(OPS, pointwise_work), is_compiled, lambda _, name, arguments: compiled_work(name, arguments)
)
