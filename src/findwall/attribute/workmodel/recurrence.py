"""Recurrent networks in one op, as cuDNN and MIOpen have them: every token meets every weight matrix once.

The inputs of a whole sequence are one product; the recurrence is one small product a step of time, in kernels
of its own or in one that keeps the weights on chip. Between them the gates are added and squashed.
"""

from __future__ import annotations

import msgspec

from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.attribute.workmodel.work import Part, Work

_FORWARD = frozenset({"_cudnn_rnn", "miopen_rnn"})
_BACKWARD = frozenset({"_cudnn_rnn_backward", "miopen_rnn_backward"})
OPS = _FORWARD | _BACKWARD
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
    into, within = _product(tokens, weights.inputs, given), _product(tokens, weights.hidden, given)
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


def _product(tokens: int, matrices: tuple[Tensor, ...], given: Tensor) -> Part:
    """Tokens by each of these: what goes in, the weights, what comes out."""
    columns = sum(matrix.dims[1] for matrix in matrices)
    return Part(
        (),
        flops=2.0 * tokens * sum(matrix.elements for matrix in matrices),
        nbytes=tokens * (columns + _rows(matrices)) * given.size + sum(matrix.nbytes for matrix in matrices),
    )
