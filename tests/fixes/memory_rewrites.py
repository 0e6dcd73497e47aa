"""Jobs drawn for rewrites that move less, and the same jobs where those do not apply."""

from __future__ import annotations

from findwall.facts.facts import Facts
from sketch import KERNELS, Drawn, facts_of, sketch


def transforming(length: int, channels_last_conv: bool = False) -> Facts:
    """A step transforms 384 images of so many pixels a side, for far longer than memory allows."""
    transform = Drawn(
        "void regular_bluestein_fft<1296u, EPT<6u>, 1u, 4u>",
        "aten::_fft_r2c",
        ([8, 48, length, length], [], [], []),
        ("float", "ScalarList", "Scalar", "Scalar"),
        concrete=("", "[2, 3]", "0", "True"),
    )
    convolution = Drawn("sm80_xmma_fprop_implicit_gemm_tf32f32", "aten::cudnn_convolution").given(
        [8, 48, length, length], [48, 48, 3, 3]
    )
    drawn = {"u": transform, "k": convolution if channels_last_conv else KERNELS["k"]}
    return facts_of(sketch("oosssssss " * 3, " uuuuuukkb" * 3, "|         " * 3, kernels=drawn))
