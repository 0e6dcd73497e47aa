"""Reductions, softmax, losses and pooling: read everything, write little or as much."""

from __future__ import annotations

import math
from collections.abc import Callable

from findwall.work.op_arguments import SECTOR, Arguments, Part, Tensor, Work, item_size
from findwall.work.op_families import Family

# op -> position of the reduced axes, None where it always reduces everything
_REDUCE: dict[str, int | None] = {
    **dict.fromkeys(("sum", "mean", "nansum", "nanmean", "logsumexp", "amax", "amin", "count_nonzero"), 1),
    **dict.fromkeys(
        ("var", "std", "var_mean", "std_mean", "prod", "any", "all", "max", "min", "argmax", "argmin"), 1
    ),
    **dict.fromkeys(("aminmax", "median", "nanmedian", "mode", "norm", "linalg_norm"), 1),
    "linalg_vector_norm": 2,
    "_foreach_norm_single": None,
    "trace": None,
}
_SOFTMAX = frozenset(
    {"_softmax", "softmax", "_log_softmax", "log_softmax", "_safe_softmax", "_masked_softmax"}
)
_SOFTMAX_BACKWARD = frozenset(
    {"_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward"}
)
_PICK = frozenset({"nll_loss", "nll_loss_forward", "nll_loss2d_forward", "nll_loss_nd"})
_PICK_BACKWARD = frozenset({"nll_loss_backward", "nll_loss2d_backward"})
_PAIR_LOSS = frozenset(
    {
        "mse_loss",
        "smooth_l1_loss",
        "huber_loss",
        "l1_loss",
        "binary_cross_entropy",
        "kl_div",
        "soft_margin_loss",
    }
    | {"binary_cross_entropy_with_logits"}
)
_PAIR_LOSS_BACKWARD = frozenset(
    {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward"}
)
_POOL = frozenset(
    {
        "max_pool2d_with_indices",
        "max_pool2d",
        "avg_pool2d",
        "_adaptive_avg_pool2d",
        "adaptive_avg_pool2d",
        "avg_pool1d",
    }
    | {"adaptive_max_pool2d", "max_pool3d_with_indices", "avg_pool3d", "_adaptive_avg_pool3d"}
)
_POOL_BACKWARD = frozenset(f"{name}_backward" for name in _POOL)


def _reduce(op: str, arguments: Arguments) -> Work | None:
    (x,), at = arguments.needed(0), _REDUCE[op]
    kept = _kept(x, arguments, at) if at is not None else 1
    return Work(
        flops=2.0 * x.elements, read_bytes=x.nbytes, write_bytes=float(kept * x.size), math=_vector(x)
    )


def _kept(x: Tensor, arguments: Arguments, at: int) -> int:
    """Elements left: all axes go where none are named."""
    axes = arguments.numbers(at)
    if axes is None:
        number = arguments.number(at)
        axes = [int(number)] if number is not None and float(number).is_integer() else []
    if not axes or not x.dims:
        return 1
    gone = {axis % len(x.dims) for axis in axes}
    return math.prod(extent for axis, extent in enumerate(x.dims) if axis not in gone)


def _vector(x: Tensor) -> str:
    return "fp64" if x.dtype == "double" else "fp32"


def _softmax(op: str, arguments: Arguments) -> Work | None:
    (x,) = arguments.needed(0)
    out = 4 if arguments.flag(2) is True else x.size
    return Work(
        flops=45.0 * x.elements, read_bytes=x.nbytes, write_bytes=float(x.elements * out), math=_vector(x)
    )


def _softmax_backward(op: str, arguments: Arguments) -> Work | None:
    gradient, result = arguments.needed(0, 1)
    out = _SCALAR_SIZES.get(arguments.text(3), gradient.size)
    return Work(
        flops=25.0 * gradient.elements,
        read_bytes=gradient.nbytes + result.nbytes,
        write_bytes=float(gradient.elements * out),
        math=_vector(gradient),
    )


# torch's numbers of the types a softmax may return
_SCALAR_SIZES = {"5": 2, "6": 4, "7": 8, "15": 2}


def _pick(op: str, arguments: Arguments) -> Work | None:
    """One element a row, at the price of a sector; the backward writes them into zeros made before."""
    at = 1 if op in _PICK_BACKWARD else 0
    _, target = arguments.needed(at, at + 1)
    touched = target.elements * float(SECTOR)
    return Work(flops=2.0 * target.elements, read_bytes=target.nbytes + touched, write_bytes=0.0, math="fp32")


def _pair_loss(op: str, arguments: Arguments) -> Work | None:
    backward = op in _PAIR_LOSS_BACKWARD
    tensors = [tensor for tensor in arguments.tensors() if tensor.dims][: 3 if backward else 2]
    if not tensors:
        return None
    largest = max(tensors, key=lambda tensor: tensor.elements)
    return Work(
        flops=(6.0 if "entropy" not in op else 45.0) * largest.elements,
        read_bytes=sum(tensor.nbytes for tensor in tensors),
        write_bytes=float(largest.elements * largest.size),
        math=_vector(largest),
    )


def _pool(op: str, arguments: Arguments) -> Work | None:
    """Output extents from kernel, stride and padding; an adaptive pool names its output."""
    (x,) = arguments.needed(0, rank=3)
    spatial = x.dims[2:]
    window = arguments.numbers(1)
    if window is None:  # sizes were not recorded: what is written is not known, what is read is
        return Work(flops=2.0 * x.elements, read_bytes=x.nbytes, math="fp32")
    stride = arguments.numbers(2) or window
    out = [
        max(size // max(step, 1), 1) for size, step in zip(spatial, _fit(stride, len(spatial)), strict=False)
    ]
    if arguments.numbers(2) is None and len(arguments) <= 2:
        out = _fit(window, len(spatial))
    written = x.dims[0] * x.dims[1] * math.prod(out)
    index = item_size("long int") or 8
    return Work(
        flops=2.0 * x.elements * math.prod(_fit(window, 2)) / max(math.prod(_fit(stride, 2)), 1),
        read_bytes=x.nbytes,
        write_bytes=float(written * (x.size + (index if len(arguments) >= 6 else 0))),
        math="fp32",
    )


def _fit(values: list[int], count: int) -> list[int]:
    return values * count if len(values) == 1 else values


def _pool_backward(op: str, arguments: Arguments) -> Work | None:
    """Reads the gradient and, of a max pool, the indices; writes a gradient as large as the input."""
    gradient, x = arguments.needed(0, 1)
    tensors = arguments.tensors()
    indices = tensors[2].nbytes if len(tensors) > 2 and "long" in tensors[2].dtype else 0.0
    return Work(
        flops=2.0 * x.elements,
        read_bytes=gradient.nbytes + indices,
        write_bytes=float(x.elements * x.size),
        math="fp32",
    )


MODELS: dict[str, Callable[[str, Arguments], Work | None]] = {
    **dict.fromkeys(_REDUCE, _reduce),
    **dict.fromkeys(_SOFTMAX, _softmax),
    **dict.fromkeys(_SOFTMAX_BACKWARD, _softmax_backward),
    **dict.fromkeys(_PICK | _PICK_BACKWARD, _pick),
    **dict.fromkeys(_PAIR_LOSS | _PAIR_LOSS_BACKWARD, _pair_loss),
    **dict.fromkeys(_POOL, _pool),
    **dict.fromkeys(_POOL_BACKWARD, _pool_backward),
}


# -- layer, batch, group and RMS norms: a kernel each for the statistics and for applying them ------------


_FORWARD = frozenset(
    {
        "native_layer_norm",
        "layer_norm",
        "native_group_norm",
        "group_norm",
        "native_batch_norm",
        "batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_no_training",
        "cudnn_batch_norm",
        "miopen_batch_norm",
        "_batch_norm_impl_index",
        "_batch_norm_with_update",
        "instance_norm",
        "_fused_rms_norm",
        "rms_norm",
        "_weight_norm_interface",
    }
)
# op -> positions of (gradient, input)
_BACKWARD = {
    "native_layer_norm_backward": (0, 1),
    "native_group_norm_backward": (0, 1),
    "native_batch_norm_backward": (0, 1),
    "batch_norm_backward": (0, 1),
    "cudnn_batch_norm_backward": (1, 0),
    "miopen_batch_norm_backward": (1, 0),
    "_fused_rms_norm_backward": (0, 1),
}
_STATISTICS = (
    "collect_statistics",
    "rowwisemoments",
    "reduce_statistics",
    "welford",
    "batch_norm_calc",
    "bnfwdtrainspatialnormmean",
)
_SMALL = ("update_stats", "computefusedparams", "compute_scale", "cubatchednorm_finalize", "final")
_REDUCTION = (
    "backward_reduce",
    "gammabeta",
    "computeinternalgradients",
    "bwdtrainspatialdscale",
    "cucompute",
)
NORM_OPS = _FORWARD | frozenset(_BACKWARD)


def norm_work(op: str, arguments: Arguments) -> Work | None:
    if op in _BACKWARD:
        return _norm_backward(*arguments.needed(*_BACKWARD[op]))
    return _norm(*arguments.needed(0, rank=1))


def _norm(x: Tensor) -> Work:
    written = float(x.elements * x.size)
    return Work(
        flops=8.0 * x.elements,
        read_bytes=x.nbytes,
        write_bytes=written,
        math="fp32",
        parts=(
            Part(_SMALL, 0.0, 0.0),
            Part(_STATISTICS, 4.0 * x.elements, x.nbytes),
            Part(("",), 8.0 * x.elements, x.nbytes + written),
        ),
    )


def _norm_backward(gradient: Tensor, x: Tensor) -> Work:
    read = gradient.nbytes + x.nbytes
    written = float(x.elements * x.size)
    return Work(
        flops=16.0 * x.elements,
        read_bytes=read,
        write_bytes=written,
        math="fp32",
        parts=(
            Part(_SMALL, 0.0, 0.0),
            Part(_REDUCTION, 6.0 * x.elements, read),
            Part(("",), 10.0 * x.elements, read + written),
        ),
    )


FAMILY = Family({**MODELS, **dict.fromkeys(NORM_OPS, norm_work)})
