"""Jobs that filter tensors or scan them, and the same where there is no cheaper way."""

from __future__ import annotations

from findwall.facts.facts import Facts
from fixes.loop_calls import ENGINE, PASS, filler
from fixes.op_calls import FLOAT, Call, job_of

FORWARD = "sm80_xmma_fprop_implicit_gemm_indexed_f32f32_f32f32_f32_nchwkcrs_nchw_cudnn"
BACKWARD = "sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_cudnn"


def filtering(
    window: tuple[int, ...] = (9, 9, 9),
    channels: int = 1,
    mixed: int = 1,
    learns: str = "False",
    backward: bool = True,
    us: float = 40_000.0,
) -> Facts:
    """A step filters a volume with a window, and gives what is filtered a gradient."""
    rank = len(window)
    image = ((1, channels * mixed, *(128 for _ in window)), FLOAT)
    weight = ((channels * mixed, mixed, *window), FLOAT)
    pad, ones, zeros = (
        f"[{', '.join(str(one) for one in given)}]"
        for given in ([side // 2 for side in window], [1] * rank, [0] * rank)
    )
    ahead = Call(
        "aten::cudnn_convolution",
        (image, weight, pad, ones, ones, str(channels), "False", "False", "True"),
        kernels=((FORWARD, us / 4),),
    )
    given = (image, image, weight, "[0]", ones, pad, ones, "False", zeros, str(channels))
    back = Call(
        "aten::convolution_backward",
        (*given, f"[True, {learns}, False]"),
        kernels=((BACKWARD, us),),
    )
    node = Call("ConvolutionBackward0", sequence=1, backward=True, inside=(back,))
    calls = [filler(), Call(f"aten::conv{rank}d", (image, weight), sequence=1, inside=(ahead,))]
    if backward:
        calls.append(
            Call(f"{ENGINE}ConvolutionBackward0", inside=(node,), sequence=1, backward=True),
        )
    return job_of(*calls)


def scanning(
    op: str = "cumsum",
    dim: int = 1,
    shape: tuple[int, ...] = (16, 64_000, 100),
    kernel: str = "outer_dim",
    first: Call | None = None,
    us: float = 20_000.0,
) -> Facts:
    """A step scans a tensor down its columns, after `first`."""
    kernels = (
        (f"void at::native::tensor_kernel_scan_{kernel}<float, unsigned int, std::plus<float> >()", us),
    )
    scan = Call(f"aten::{op}", ((shape, FLOAT), str(dim), ""), kernels=kernels)
    between = Call("aten::sin", ((shape, FLOAT),), kernels=((PASS, 700.0),))
    return job_of(filler(), first or between, scan, between)


def broadcast(factor: tuple[int, ...] = (100,), small: tuple[int, ...] = (16, 64_000, 1)) -> Facts:
    """The same where a small tensor was multiplied with a factor in front of it."""
    given = ((small, FLOAT), (factor, FLOAT))
    return scanning(first=Call("aten::mul", given, kernels=((PASS, 400.0),)))
