"""What a category means, whichever generation of torch and whichever vendor wrote it."""

from __future__ import annotations

import re

from findwall.model.events import Kind

SKIP = -1  # the profiler's own frame around the window: not an event of the job

_KNOWN: dict[str, int] = {
    "cpu_op": Kind.OP,
    "operator": Kind.OP,
    "user_annotation": Kind.ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
    "hpu_op": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.SYNC,
    "trace": SKIP,
}

# Newer back ends follow one pattern: xpu_runtime, privateuse1_driver, mtia_runtime, ...
_BY_ENDING = (
    ("_runtime", Kind.RUNTIME),
    ("_driver", Kind.RUNTIME),
    ("_kernel", Kind.KERNEL),
    ("_memcpy", Kind.MEMCPY),
    ("_memset", Kind.MEMSET),
    ("_sync", Kind.SYNC),
)

# torch 1.8 had no category for ranges: they came as operators.
RANGE_NAME = re.compile(r"ProfilerStep|Optimizer\.|enumerate\(DataLoader\)")


class _Kinds(dict[str, int]):
    """Category text to kind; each spelling is worked out once."""

    def __missing__(self, category: str) -> int:
        lowered = category.lower()
        kind = _KNOWN.get(lowered)
        if kind is None:
            kind = next((k for ending, k in _BY_ENDING if lowered.endswith(ending)), Kind.OTHER)
        self[category] = int(kind)
        return int(kind)


KIND_OF = _Kinds()
