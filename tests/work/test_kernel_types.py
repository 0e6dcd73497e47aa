"""Types told by kernels, where an export has shapes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.model.events import Inputs, Kind
from findwall.readers.nsys import read_export
from findwall.step.links import link
from findwall.work.work_by_name import with_kernel_types
from nsys_tables import Export, global_id

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SPLIT = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(T1)"
ADD_BF16 = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>(int)"
)
ADD_CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, "
    "at::native::memory::LoadWithCast<2>, at::native::memory::StoreWithCast<1>>(int)"
)
TO_BF16 = (
    "void at::native::vectorized_elementwise_kernel<8, "
    "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]>(int)"
)
TO_FP32 = (
    "void at::native::unrolled_elementwise_kernel<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]"
    "::operator ()() const::[lambda(float) (instance 1)], "
    "at::native::memory::LoadWithCast<1>>(int)"
)
WHERE = "void at::native::elementwise_kernel<128, 4, where_kernel::[lambda(bool, float) (instance 1)]>(int)"


def types(path: Path, op: str, sizes: str, *kernels: str) -> list[str | list[str]]:
    """Of the first of these ops, which launches these kernels one after the other."""
    export = Export(path)
    rows = []
    for number, name in enumerate((*kernels, GEMM), 1):
        place = (1000 * number + 100, 1000 * number + 900, 0, 1, 0, 7, number, global_id(5))
        text = export.string(name)
        rows.append((*place, text, text, 32, 1, 1, 1, 128, 1, 1, 0, 0, None))
        call = (1000 * number, 1000 * number + 10, 0, global_id(5, 5), number)
        export.insert("CUPTI_ACTIVITY_KIND_RUNTIME", [(*call, export.string("cudaLaunchKernel_v7000"), 0)])
    export.insert("CUPTI_ACTIVITY_KIND_KERNEL", rows)
    last = 1000 * len(kernels) + 20
    ranges = [(900, last, f"{op}, op_id = 1, sizes = {sizes}")]
    ranges.append((last + 100, last + 2000, "aten::mm, op_id = 2, sizes = [[8, 8], [8, 8]]"))
    export.insert(
        "NVTX_EVENTS",
        [
            (a, b, 59, None, None, None, text, global_id(5, 5), None, None, 0, None, None)
            for a, b, text in ranges
        ],
    )
    export.close()
    (timeline,) = read_export(path).timelines
    typed = with_kernel_types(timeline, link(timeline))
    first = int(typed.rows(Kind.OP)[0])
    found = typed.inputs_of(first)
    assert isinstance(found, Inputs)
    return found.types


BF16, FP32 = "c10::BFloat16", "float"
ONE, TWO = "[[8, 8]]", "[[8, 8], [8, 8], []]"


@pytest.mark.parametrize(
    ("op", "sizes", "kernels", "told"),
    [
        ("aten::mm", "[[8, 8], [8, 8]]", (GEMM,), [BF16, BF16]),
        ("aten::mm", "[[8, 8], [8, 8]]", (GEMM, SPLIT), [BF16, BF16]),
        ("aten::_scaled_mm", TWO, (GEMM,), []),
        ("aten::add", TWO, (ADD_BF16,), [BF16, BF16, ""]),
        ("aten::add", TWO, (ADD_CAST,), []),
        ("aten::add", TWO, (ADD_BF16, ADD_CAST), []),
        ("aten::copy_", "[[8, 8], [8, 8], []]", (TO_BF16,), [BF16, FP32, ""]),
        ("aten::copy_", "[[8, 8], [8, 8], []]", (TO_FP32,), [FP32, BF16, ""]),
        ("aten::where", "[[8, 8], [8, 8], [8, 8]]", (WHERE,), ["bool", FP32, FP32]),
        ("aten::index", TWO, (ADD_BF16,), []),
        ("aten::scaled_dot_product_attention", "[[1, 2, 8, 8], [1, 2, 8, 8], [1, 2, 8, 8]]", (GEMM,), []),
    ],
)
def test_what_kernels_tell(
    tmp_path: Path, op: str, sizes: str, kernels: tuple[str, ...], told: list[str]
) -> None:
    assert types(tmp_path / "a.sqlite", op, sizes, *kernels) == told
