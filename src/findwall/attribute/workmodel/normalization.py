"""Layer, batch, group and RMS norms: a kernel each for the statistics and for applying them."""

from __future__ import annotations

from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.attribute.workmodel.work import Part, Work

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
OPS = _FORWARD | frozenset(_BACKWARD)


def norm_work(op: str, arguments: Arguments) -> Work | None:
    if op in _BACKWARD:
        return _backward(*arguments.needed(*_BACKWARD[op]))
    return _forward(*arguments.needed(0, rank=1))


def _forward(x: Tensor) -> Work:
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


def _backward(gradient: Tensor, x: Tensor) -> Work:
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
