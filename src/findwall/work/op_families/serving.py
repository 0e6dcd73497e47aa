"""Ops of inference servers: norms, rotary embedding, caches, quantisation."""

from __future__ import annotations

from findwall.work.op_arguments import Arguments, Tensor, Work
from findwall.work.op_families import Family

# op -> positions read, positions written (each once, whole). Names that several servers give the same
# arguments stand alone; those of one library stand with it.
_MOVES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "rms_norm": ((1, 2), (0,)),
    "fused_add_rms_norm": ((0, 1, 2), (0, 1)),
    "silu_and_mul": ((1,), (0,)),
    "gelu_and_mul": ((1,), (0,)),
    "gelu_tanh_and_mul": ((1,), (0,)),
    "static_scaled_fp8_quant": ((1,), (0,)),
    "dynamic_scaled_fp8_quant": ((1,), (0,)),
    "dynamic_per_token_scaled_fp8_quant": ((1,), (0,)),
    "rms_norm_static_fp8_quant": ((1, 2), (0,)),
    "fused_add_rms_norm_static_fp8_quant": ((1, 2, 3), (0, 2)),
    "topk_softmax": ((3,), (0, 1)),
    "sgl_kernel::rmsnorm": ((1, 2), (0,)),
    "sgl_kernel::gemma_rmsnorm": ((1, 2), (0,)),
    "sgl_kernel::fused_add_rmsnorm": ((0, 1, 2), (0, 1)),
    "sgl_kernel::gemma_fused_add_rmsnorm": ((0, 1, 2), (0, 1)),
    "sgl_kernel::sgl_per_token_quant_fp8": ((0,), (1, 2)),
    "sgl_kernel::sgl_per_token_group_quant_fp8": ((0,), (1, 2)),
    "sgl_kernel::sgl_per_token_group_quant_8bit": ((0,), (1, 2)),
    "aiter::rmsnorm": ((1, 2), (0,)),
    "aiter::add_rmsnorm": ((1, 2, 4), (0, 3)),
}
_ROTARY = frozenset({"rotary_embedding", "batched_rotary_embedding"})
_CACHE = frozenset({"reshape_and_cache", "reshape_and_cache_flash", "sglang::store_cache"})
_EXPERTS = frozenset({"inplace_fused_experts", "outplace_fused_experts"})
_NAMES = frozenset(_MOVES) | _ROTARY | _CACHE | _EXPERTS
# Whose ops are fused by hand: a compiler takes each as it is.
SERVERS = ("_C", "_C_cache_ops", "_moe_C", "sgl_kernel", "vllm", "sglang", "flashinfer", "aiter")
# Of these the ones whose short names mean the same in each.
_ALIKE = ("_C", "_C_cache_ops", "_moe_C", "sgl_kernel", "vllm", "sglang")


def is_serving(namespace: str, op: str) -> bool:
    return f"{namespace}::{op}" in _NAMES or (namespace in _ALIKE and op in _NAMES)


def serving_work(namespace: str, op: str, arguments: Arguments) -> Work | None:
    name = f"{namespace}::{op}" if f"{namespace}::{op}" in _NAMES else op
    if name in _CACHE:
        return _cache(arguments)
    if name in _ROTARY:
        return _rotary(arguments)
    if name in _EXPERTS:
        return _experts(arguments)
    reads, writes = _MOVES[name]
    read = [tensor for index in reads if (tensor := arguments.tensor(index)) is not None]
    written = [tensor for index in writes if (tensor := arguments.tensor(index)) is not None]
    if not read or not written:
        return None
    return Work(
        flops=8.0 * max(tensor.elements for tensor in read),
        read_bytes=sum(tensor.nbytes for tensor in read),
        write_bytes=sum(_size(tensor) for tensor in written),
        math="fp32",
    )


_EXPERT_DIMS = 3  # experts, rows, columns


def _experts(arguments: Arguments) -> Work | None:
    """Every token through the two matrices of each expert it was sent to; of the experts those that got one.

    Who got tokens is not recorded: as many experts as equal chances would give.
    """
    hidden, first, second, chosen = arguments.needed(0, 1, 2, 3, rank=1)
    if len(first.dims) != _EXPERT_DIMS or len(second.dims) != _EXPERT_DIMS:
        return None
    experts, tokens, sent = first.dims[0], hidden.elements // max(hidden.dims[-1], 1), chosen.elements
    if not experts or not tokens:
        return None
    awake = experts * (1.0 - (1.0 - min(sent / tokens / experts, 1.0)) ** tokens)
    # Packed 4-bit weights have fewer columns than the tokens they meet: two values in a byte.
    wide = hidden.dims[-1] / max(first.dims[2], 1)
    elements = (first.elements + second.elements) / experts * wide
    return Work(
        flops=2.0 * sent * elements,
        read_bytes=_size(hidden) + awake / experts * (_size(first) + _size(second)),
        write_bytes=_size(hidden),
        math=first.math or hidden.math,
        tensor_core_able=True,
    )


def _size(tensor: Tensor) -> float:
    return float(tensor.elements * tensor.size)


def _rotary(arguments: Arguments) -> Work | None:
    """Queries and keys turned in place; a row of cosines and sines a token."""
    moved = [tensor for index in (1, 2) if (tensor := arguments.tensor(index)) is not None]
    if not moved:
        return None
    total = sum(_size(tensor) for tensor in moved)
    return Work(flops=6.0 * sum(t.elements for t in moved), read_bytes=total, write_bytes=total, math="fp32")


def _cache(arguments: Arguments) -> Work | None:
    """New keys and values into their slots, in the cache's own type."""
    k, v, cache = arguments.needed(0, 1, 2)
    return Work(
        read_bytes=k.nbytes + v.nbytes, write_bytes=float((k.elements + v.elements) * cache.size), math="fp32"
    )


FAMILY = Family(others=is_serving, work=serving_work)
