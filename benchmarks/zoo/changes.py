"""Changes that many jobs take alike. The name of a fix lists its changes ("compile_bf16"); None has none."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


def compiled(what: Any, fix: str | None) -> Any:
    """`what` compiled as the fix says, else as it is."""
    if "reduce_overhead" in (fix or ""):
        return torch.compile(what, mode="reduce-overhead")
    return torch.compile(what) if "compile" in (fix or "") else what


def precision(device: str, fix: str | None) -> contextlib.AbstractContextManager[Any]:
    """Autocast to bf16 if the fix says so; else nothing at all."""
    return torch.autocast(device, torch.bfloat16) if "bf16" in (fix or "") else contextlib.nullcontext()


def switches(fix: str | None) -> None:
    """TF32 for matmuls and cuDNN's autotuner: off, as torch has them, unless the fix turns them on."""
    torch.set_float32_matmul_precision("high" if "tf32" in (fix or "") else "highest")
    torch.backends.cudnn.benchmark = "cudnn_benchmark" in (fix or "")


def optimizer_kind(fix: str | None, **usual: bool) -> dict[str, bool]:
    """`fused` or `foreach` if the fix says so, else what the job has."""
    for kind in ("fused", "foreach"):
        if kind in (fix or ""):
            return {kind: True}
    return usual
