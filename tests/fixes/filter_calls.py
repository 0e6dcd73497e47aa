"""Jobs that filter tensors or scan them, and the same where there is no cheaper way."""

from __future__ import annotations

from findwall.facts.facts import Facts
from fixes.loop_calls import ENGINE, filler
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
