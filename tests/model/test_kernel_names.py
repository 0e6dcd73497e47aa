"""Names of kernels, short enough to print."""

from __future__ import annotations

import pytest

from findwall.model.short_kernel_names import short_kernel


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void cutlass::Kernel2<cutlass_75_tensorop_align1>(Params)", "cutlass_75_tensorop_align1"),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<MulFunctor<float>>>",
            "elementwise_kernel<MulFunctor>",
        ),
        ("nvjet_sm90_tst_128x256_NNT", "nvjet_sm90_tst_128x256_NNT"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("x" * 100, "x" * 27 + "…" + "x" * 28),
    ],
)
def test_kernel_names_are_cut_to_what_tells(name: str, expected: str) -> None:
    assert short_kernel(name) == expected
