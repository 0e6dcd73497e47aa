"""Kernels that move only what they must."""

from __future__ import annotations

from msgspec.structs import replace

from findwall.causes.bandwidth import memory_roof
from findwall.facts.facts import Facts
from sketch import KERNELS, Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|   |   |   "
CPU = "o   o   o"
NORM = "void at::native::vectorized_layer_norm_kernel<float, float>"


def fires() -> Facts:
    large = {"w": KERNELS["w"].given([57344, 8192], [8192])}
    return facts_of(sketch(cpu=CPU, gpu="w   w   w", steps=STEPS, kernels=large))


def clear() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="m   m   m", steps=STEPS))


def cannot_tell() -> Facts:
    return facts_of(sketch(cpu=CPU, gpu="w   w   w", steps=STEPS, kernels={"w": Drawn(NORM, "my::norm")}))


def test_decoding_is_told_to_grow_its_batch() -> None:
    thin = KERNELS["m"].given([1, 32768], [32768, 65536], dtype="c10::BFloat16")
    facts = facts_of(sketch(cpu=CPU, gpu="m   m   m", steps=STEPS, kernels={"m": thin}))
    assert facts.spent_ms("memory-roof") > 0
    assert "a larger batch" in in_words(memory_roof.CAUSE, facts)
    assert "16-bit weights" in in_words(memory_roof.CAUSE, facts)
    assert "fp8 or int8" in in_words(memory_roof.CAUSE, facts)


def test_the_roof_of_fp32_values_says_what_narrower_ones_do() -> None:
    """A batch norm follows the convolution's type; a layer norm stays fp32 under autocast."""
    images = Drawn("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "aten::cudnn_batch_norm").given(
        [600, 256, 56, 56], [256]
    )
    facts = facts_of(sketch(cpu=CPU, gpu="w   w   w", steps=STEPS, kernels={"w": images}))
    text = in_words(memory_roof.CAUSE, facts)
    assert "fp32 values" in text
    assert "16-bit values under autocast would save up to 500 us" in text
    assert "channels-last" not in text  # nothing is convolved
    assert "autocast leaves these ops in fp32" in in_words(memory_roof.CAUSE, fires())


def test_in_the_default_layout_narrow_values_need_channels_last() -> None:
    dims = [600, 256, 56, 56]
    kernels = {
        "w": Drawn("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "aten::cudnn_batch_norm").given(
            dims, [256]
        ),
        "v": Drawn(
            "sm90_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "aten::cudnn_convolution"
        ).given(dims, [256, 256, 3, 3]),
    }
    facts = facts_of(sketch(cpu="oo  oo  oo", gpu="vw  vw  vw", steps=STEPS, kernels=kernels))
    assert "use channels-last with them, or NCHW costs layout copies again" in in_words(
        memory_roof.CAUSE, facts
    )


def test_sixteen_bit_values_are_called_so() -> None:
    narrow = KERNELS["w"].given([114688, 8192], [8192], dtype="c10::BFloat16")
    facts = facts_of(sketch(cpu=CPU, gpu="w   w   w", steps=STEPS, kernels={"w": narrow}))
    assert "16-bit values" in in_words(memory_roof.CAUSE, facts) and "8-bit tensors" in in_words(
        memory_roof.CAUSE, facts
    )


def transforming(dtype: str = "c10::complex<float>") -> Facts:
    """A field that is transformed and multiplied: neither comes near what memory moves."""
    field = [12, 4096, 4096]
    types = (dtype, "ScalarList", "Scalar", "Scalar")
    fft = Drawn("regular_fft_factor<4096u>", "aten::_fft_c2c", (field, [], [], []), types)
    drawn = {"f": replace(fft, concrete=("", "[1, 2]", "0", "True"))}
    drawn["m"] = replace(KERNELS["k"].given(field, field, dtype=dtype), op="aten::mul")
    return facts_of(sketch("oo   oo   oo   ", "fffmmfffmmfffmm", "|    |    |    ", kernels=drawn, us=800))


def test_no_compiler_writes_passes_over_complex_numbers() -> None:
    facts = transforming()
    assert facts.spent_ms("slow-kernels") > 3.9 and facts.spent_ms("unfused-pointwise") == 0
    assert transforming("float").spent_ms("unfused-pointwise") > 0
