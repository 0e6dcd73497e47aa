from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findwall.report.printable_names import brief, clean, fit, kernel_name

NAMES = {
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
    "(cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1::Params)": (
        "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1"
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>)": (
        "vectorized_elementwise_kernel<CUDAFunctor_add>"
    ),
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >"
    "(at::TensorIteratorBase&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast)": (
        "elementwise_kernel<MulFunctor>"
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false>(float*, int)": (
        "softmax_warp_forward"
    ),
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)": "fused_add_rms_norm_kernel",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": (
        "ncclKernel_AllReduce_RING_LL_Sum_float"
    ),
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "Memcpy HtoD (Pageable -> Device)": "Memcpy HtoD (Pageable -> Device)",
    "triton_poi_fused_add_mul_3": "triton_poi_fused_add_mul_3",
}


@pytest.mark.parametrize("name", NAMES)
def test_kernel_names_keep_what_tells_them_apart(name: str) -> None:
    assert kernel_name(name) == NAMES[name]


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jgone", "gone"),
        ("one\ntwo\r\tthree", "one two three"),
        ("\u202egpj.exe\u2066", "gpj.exe"),
        ("lone \udc80 surrogate", "lone surrogate"),
        ("nul\x00bell\x07", "nulbell"),
    ],
)
def test_nothing_in_a_name_reaches_the_terminal_as_a_command(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


@given(st.text(max_size=200))
def test_clean_text_is_one_printable_line(text: str) -> None:
    cleaned = clean(text)
    assert cleaned == cleaned.strip()
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in cleaned)
    cleaned.encode()
    kernel_name(text)


@given(st.text("abc<>():, ", max_size=60))
def test_unbalanced_names_still_give_a_name(text: str) -> None:
    assert kernel_name(text) or not clean(text)


def test_long_names_keep_both_ends() -> None:
    assert fit("abcdefghij", 5) == "ab…ij"
    assert fit("abc", 5) == "abc"
    assert brief("abcdef", 4) == "abc…"
