"""What kind of kernel a name stands for, whether it runs on tensor cores, and in which number format.

The class is a property of the kernel: cuDNN launches its own layout kernels inside a convolution, and
those are copies. Only where a name says nothing does the op that launched it decide. What names say is in
the tables of `names/`.
"""

from __future__ import annotations

import functools

from findwall.model.events import Kind
from findwall.model.machine import MATH_TYPES
from findwall.step.kernel_names import FORMATS, KERNELS, OPS, TENSOR_CORES
from findwall.step.kernel_names.name_parts import NAMES_KEPT, telling_part

MATH_INDEX = {name: index for index, name in enumerate(MATH_TYPES)}


def class_part(kernel_name: str) -> str:
    """What the class is read from: FBGEMM is mostly embeddings, so the gemm in its name says nothing."""
    return telling_part(kernel_name).replace("fbgemm", "")


def classify(kernel_name: str, op_name: str | None, kind: Kind) -> str:
    """One of `KERNEL_CLASSES`."""
    if kind == Kind.MEMCPY:
        # Inside the device a memcpy is one more copy kernel; across the link it is a transfer.
        inside = "dtod" in kernel_name.lower() or "device -> device" in kernel_name.lower()
        return "copy" if inside else "memcpy"
    if kind == Kind.MEMSET:
        return "memcpy"
    return _classify_kernel(kernel_name, op_name)


@functools.lru_cache(maxsize=NAMES_KEPT)
def _classify_kernel(kernel_name: str, op_name: str | None) -> str:
    name = class_part(kernel_name)
    if name.startswith("triton_"):
        return _compiled_class(name)
    if "multi_tensor_apply" in name or "foreach" in name:
        return _multi_tensor_class(name, op_name)
    return KERNELS.read(name) or op_class(op_name) or "other"


@functools.lru_cache(maxsize=NAMES_KEPT)
def op_class(op_name: str | None) -> str | None:
    """The class an op's name suggests, for kernels whose own name says nothing."""
    return OPS.read(op_name.lower()) if op_name else None


def _multi_tensor_class(name: str, op_name: str | None) -> str:
    """Foreach kernels are an optimizer's or a gradient clipper's; only their norms reduce."""
    if "norm" in name or "cleanup" in name or (op_name or "").endswith("_foreach_norm"):
        return "reduce"
    if "copy" in name and "_copy" in (op_name or ""):
        return "copy"
    return "optimizer"


_LAYOUT_ONLY = {
    "to",
    "copy",
    "clone",
    "cat",
    "view",
    "unsafe",
    "transpose",
    "permute",
    "stack",
    "t",
    "contiguous",
    "expand",
    "slice",
    "unsqueeze",
    "squeeze",
    "split",
    "select",
    "alias",
}


def _compiled_class(name: str) -> str:
    """Inductor writes the fused ops into the name: triton_red_fused_add_mean_pow_3."""
    if "attention" in name or "attn" in name:
        return "attention"
    if name.startswith(("triton_tem", "triton_mm", "triton_bmm", "triton_gemm")):
        return "conv" if "convolution" in name else "matmul"
    if name.startswith("triton_for"):
        return "optimizer"
    if "_fused" not in name:
        return "pointwise"
    words = [word for word in name.split("_fused", 1)[1].split("_") if word and not word.isdigit()]
    if "softmax" in words:
        return "softmax"
    if name.startswith(("triton_red", "triton_per", "triton_split_scan", "triton_mix")):
        normalises = "norm" in words or ("rsqrt" in words and ("mean" in words or "var" in words))
        return "norm" if normalises else "reduce"
    if words and set(words) <= _LAYOUT_ONLY:
        return "copy"
    if "embedding" in words or "index" in words or "gather" in words or "scatter" in words:
        return "gather"
    return "pointwise"


@functools.lru_cache(maxsize=NAMES_KEPT)
def uses_tensor_cores(kernel_name: str) -> bool | None:
    """None where the name does not tell."""
    return TENSOR_CORES.read(telling_part(kernel_name))


@functools.lru_cache(maxsize=NAMES_KEPT)
def math_in_name(kernel_name: str) -> str | None:
    """The format a kernel's own name gives away."""
    return FORMATS.read(telling_part(kernel_name))


def on_tensor_cores_in_tf32(kernel_name: str) -> bool:
    """Whether a kernel on fp32 data uses tensor cores at one pass a product.

    Memory-efficient attention on fp32 data splits each product in three tf32 ones to keep fp32's accuracy:
    it is no faster than the vector pipe.
    """
    name = telling_part(kernel_name)
    if "fmha_cutlass" in name:
        return False
    # AMD's matrix cores take fp32 as it is; only xf32 is the short form.
    if name.startswith(("cijk_", "igemm_")):
        return "xf32" in name or "_mx" in name
    return uses_tensor_cores(kernel_name) is True
