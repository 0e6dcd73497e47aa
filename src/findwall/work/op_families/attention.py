"""Scaled dot-product attention in every form torch and its libraries give it, forward and backward.

Forward is two products (4 FLOPs a score and head element), backward five of the same size. A causal mask
halves both. The scores themselves are never written: bytes are those of q, k, v, the result and gradients.
"""

from __future__ import annotations

import msgspec

from findwall.work.op_arguments import Arguments, Part, Tensor, Work
from findwall.work.op_families import Family


class _Layout(msgspec.Struct, frozen=True):
    """Positions: first of q, k, v; the flag or mask type that says causal; heads before sequence or after."""

    q: int
    causal: int
    heads_first: bool
    backward: bool = False


FORMS: dict[str, _Layout] = {
    "scaled_dot_product_attention": _Layout(0, 5, True),
    "_scaled_dot_product_attention_math": _Layout(0, 5, True),
    "_scaled_dot_product_flash_attention": _Layout(0, 4, True),
    "_scaled_dot_product_flash_attention_backward": _Layout(1, 11, True, True),
    "_scaled_dot_product_efficient_attention": _Layout(0, 6, True),
    "_scaled_dot_product_efficient_attention_backward": _Layout(1, 11, True, True),
    "_scaled_dot_product_cudnn_attention": _Layout(0, 6, True),
    "_scaled_dot_product_cudnn_attention_backward": _Layout(1, 14, True, True),
    "_scaled_dot_product_flash_attention_for_cpu": _Layout(0, 4, True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Layout(1, 7, True, True),
    "_scaled_dot_product_fused_attention_overrideable": _Layout(0, 5, True),
    "_cudnn_attention_forward": _Layout(0, 10, True),
    "_cudnn_attention_backward": _Layout(1, 14, True, True),
    "_flash_attention_forward": _Layout(0, 8, False),
    "_flash_attention_backward": _Layout(1, 11, False, True),
    "_efficient_attention_forward": _Layout(0, 9, False),
    "_efficient_attention_backward": _Layout(1, 14, False, True),
    "_flash_attn_forward": _Layout(0, 5, False),
    "_flash_attn_backward": _Layout(1, 11, False, True),
    "_flash_attn_varlen_forward": _Layout(0, 9, False),
    "_flash_attn_varlen_backward": _Layout(1, 15, False, True),
    "mha_fwd": _Layout(0, -1, False),
    "mha_bwd": _Layout(1, -1, False, True),
    "memory_efficient_attention": _Layout(0, -1, False),
}


def attention_work(op: str, arguments: Arguments) -> Work | None:
    form = FORMS[op]
    q, k, v = arguments.needed(form.q, form.q + 1, form.q + 2)
    if len(q.dims) != 4:  # packed sequences are [tokens, heads, size]: each attends within its own
        return None
    products = _score_elements(q, k, v, form)
    if _is_causal(arguments, form.causal):
        products *= _triangle(q, k, form)
    if form.backward:
        return _backward(q, k, v, products)
    return Work(
        flops=4.0 * products,
        read_bytes=q.nbytes + k.nbytes + v.nbytes,
        write_bytes=_result_bytes(q, v),
        math=q.math,
        tensor_core_able=True,
    )


def _score_elements(q: Tensor, k: Tensor, v: Tensor, form: _Layout) -> float:
    """Scores times the mean of the two head sizes: half the multiply-adds of one product each."""
    sequence = 2 if form.heads_first else 1
    heads = 1 if form.heads_first else 2
    scores = float(q.dims[0] * q.dims[heads] * q.dims[sequence] * k.dims[sequence])
    return scores * (q.dims[3] + v.dims[3]) / 2


def _is_causal(arguments: Arguments, index: int) -> bool:
    """A flag, or a mask type: 0 none, 1 and 2 causal from either corner."""
    if index < 0:
        return False
    flag = arguments.flag(index)
    return flag if flag is not None else (arguments.number(index) or 0.0) >= 1.0


def _triangle(q: Tensor, k: Tensor, form: _Layout) -> float:
    """The share of the scores a causal mask leaves."""
    sequence = 2 if form.heads_first else 1
    queries, keys = q.dims[sequence], k.dims[sequence]
    if queries == 0 or keys == 0:
        return 1.0
    return (keys + 1) / (2 * keys) if queries >= keys else 1.0 - (queries - 1) / (2 * keys)


def _result_bytes(q: Tensor, v: Tensor) -> float:
    return q.elements / max(q.dims[-1], 1) * (v.dims[-1] * q.size + 4.0)


def _backward(q: Tensor, k: Tensor, v: Tensor, products: float) -> Work:
    """Beside the main kernel libraries reduce gradient x result first and convert an fp32 dq last."""
    result = _result_bytes(q, v)
    read = q.nbytes + k.nbytes + v.nbytes + 2 * result
    written = float(q.elements * q.size + k.elements * k.size + v.elements * v.size)
    wide = 4.0 * q.elements
    return Work(
        flops=10.0 * products,
        read_bytes=read,
        write_bytes=written,
        math=q.math,
        tensor_core_able=True,
        parts=(
            Part(("dot_do_o", "dot_do_dot"), 0.0, 2 * result),
            Part(("convert_dq",), 0.0, wide + q.elements * q.size),
            Part(("",), 10.0 * products, read + written),
        ),
    )


FAMILY = Family(dict.fromkeys(FORMS, attention_work))
