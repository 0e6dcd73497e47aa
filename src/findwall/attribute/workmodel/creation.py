"""Making values out of nothing: fills, ranges, random numbers."""

from __future__ import annotations

from findwall.attribute.workmodel.arguments import Arguments
from findwall.attribute.workmodel.work import Work

_FILL = frozenset(
    {"fill_", "zero_", "ones_like", "zeros_like", "full_like", "empty_like", "_fill_mem_eff_dropout_mask_"}
)
_RANDOM = frozenset(
    {"uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "geometric_"}
)
_RANDOM |= {"cauchy_", "rand_like", "randn_like", "randint_like", "bernoulli", "trunc_normal_"}
_SIZED = frozenset({"zeros", "ones", "full", "rand", "randn", "empty"})
OPS = _FILL | _RANDOM | _SIZED | {"arange", "eye"}


def creation_work(op: str, arguments: Arguments) -> Work | None:
    if op in ("arange", "eye") or op in _SIZED:
        return None  # the fill or the range inside records the result itself, if anything does
    (x,) = arguments.needed(0)
    weight = 25.0 if op in _RANDOM else 0.0
    return Work(flops=weight * x.elements, write_bytes=float(x.elements * x.size), math="fp32")
