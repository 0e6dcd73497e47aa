"""Ops of inference servers: norms, rotary embedding, caches, quantisation."""

from __future__ import annotations

from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.attribute.workmodel.work import Work

# op -> positions read, positions written (each once, whole)
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
}
_ROTARY = frozenset({"rotary_embedding", "batched_rotary_embedding"})
_CACHE = frozenset({"reshape_and_cache", "reshape_and_cache_flash"})
NAMES = frozenset(_MOVES) | _ROTARY | _CACHE
NAMESPACES = ("_C", "_C_cache_ops", "_moe_C", "sgl_kernel", "vllm")


def serving_work(op: str, arguments: Arguments) -> Work | None:
    if op in _CACHE:
        return _cache(arguments)
    if op in _ROTARY:
        return _rotary(arguments)
    reads, writes = _MOVES[op]
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
    k, v, cache = arguments.tensor(0), arguments.tensor(1), arguments.tensor(2)
    if k is None or v is None or cache is None:
        return None
    return Work(
        read_bytes=k.nbytes + v.nbytes, write_bytes=float((k.elements + v.elements) * cache.size), math="fp32"
    )
