"""Names as the libraries write them, on both vendors, and what findwall takes them for."""

from __future__ import annotations

import pytest

from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Kind
from findwall.model.machine import math_of_dtype
from findwall.step.kernel_classes import classify, math_in_name, on_tensor_cores_in_tf32, uses_tensor_cores

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::{}, std::array<char*, 3ul> >(int)"
)
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, {}>()"

KERNELS = [
    ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "matmul"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)", "matmul"),
    ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)", "matmul"),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_aligna4_execute_kernel__5x_cublas",
        "matmul",
    ),
    ("ampere_sgemm_32x32_sliced1x4_tn", "matmul"),
    ("volta_sgemm_128x32_nt", "matmul"),
    ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(cublasGemvParams)", "matmul"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams)", "matmul"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1", "matmul"),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "matmul"),
    ("triton_tem_fused_mm_3", "matmul"),
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "conv"),
    ("sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32", "conv"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", "conv"),
    ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", "conv"),
    ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv"),
    ("void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*)", "conv"),
    ("igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt32x256x32", "conv"),
    (
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(nchw2nhwc_params_t<float>)",
        "copy",
    ),
    ("batched_transpose_16x64_pack_1x4_ediv_1x2_half", "copy"),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, 4, 64, 64>()",
        "copy",
    ),
    (ELEMENTWISE.format("bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}"), "copy"),
    (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(Iter&)>()",
        "copy",
    ),
    (ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>"), "pointwise"),
    ("void at::native::elementwise_kernel_with_index<int, at::native::arange_cuda_out()>(int)", "pointwise"),
    (
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, 1, 4>()",
        "pointwise",
    ),
    ("triton_poi_fused__unsafe_view_mul_silu_2", "pointwise"),
    ("triton_poi_fused__to_copy_1", "copy"),
    ("triton_poi_fused_embedding_3", "gather"),
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "norm"),
    ("triton_per_fused_native_layer_norm_4", "norm"),
    ("triton_per_fused__softmax_2", "softmax"),
    ("triton_red_fused_sum_1", "reduce"),
    ("triton_for_fused_1", "optimizer"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64", "attention"),
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>()",
        "attention",
    ),
    (
        "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<>)",
        "attention",
    ),
    ("attn_fwd", "attention"),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", "attention"),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int)",
        "norm",
    ),
    (
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u>()",
        "norm",
    ),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)", "norm"),
    (
        "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
        "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        "norm",
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*)",
        "softmax",
    ),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float>()", "softmax"),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()",
        "reduce",
    ),
    ("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>()", "reduce"),
    ("void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16, float>()", "reduce"),
    (FOREACH.format("at::native::FusedAdamMathFunctor<float, 4>"), "optimizer"),
    (FOREACH.format("at::native::PointwiseOpScalarFunctor<float, 3, 3, 0>"), "optimizer"),
    (FOREACH.format("at::native::LpNormFunctor<float, (at::native::NormType)1, float>"), "reduce"),
    (
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, 2, 2, -2>()",
        "gather",
    ),
    ("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<>>()", "gather"),
    (
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<c10::Half>()",
        "gather",
    ),
    ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>()", "gather"),
    ("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy>()", "other"),
    ("void at::native::(anonymous namespace)::gatherMedian<float, unsigned int, 2>()", "other"),
    ("void at::native::mbtopk::gatherTopK<float, unsigned int, 2>()", "other"),
    ("at::native::mbtopk::computeDigitCumSum(short*, unsigned int*, unsigned int)", "other"),
    ("void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*)", "reduce"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
    (
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "collective",
    ),
]


@pytest.mark.parametrize(("name", "expected"), KERNELS, ids=[name[:60] for name, _ in KERNELS])
def test_a_name_gives_its_class(name: str, expected: str) -> None:
    assert classify(name, None, Kind.KERNEL) == expected


def test_copies_inside_the_device_are_copies_and_transfers_are_not() -> None:
    assert classify("Memcpy DtoD (Device -> Device)", "aten::copy_", Kind.MEMCPY) == "copy"
    assert classify("Memcpy HtoD (Pageable -> Device)", "aten::copy_", Kind.MEMCPY) == "memcpy"
    assert classify("Memset (Device)", "aten::zero_", Kind.MEMSET) == "memcpy"


def test_the_op_decides_only_where_the_name_says_nothing() -> None:
    assert classify("kernel_17", "aten::addmm", Kind.KERNEL) == "matmul"
    assert classify("kernel_17", "aten::native_layer_norm", Kind.KERNEL) == "norm"
    assert classify("kernel_17", None, Kind.KERNEL) == "other"
    layout = "void cudnn::ops::nchwToNhwcKernel<float, float, float>(params)"
    assert classify(layout, "aten::cudnn_convolution", Kind.KERNEL) == "copy"


def test_every_class_is_in_the_catalogue() -> None:
    assert {expected for _, expected in KERNELS} <= set(KERNEL_CLASSES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", True),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(P)", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)", True),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tensor16x8x8", True),
        ("Cijk_Alik_Bljk_BBS_BH_MT256x192x64_MI16x16x1_SN", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(P)", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4", False),
        ("volta_sgemm_64x64_nt", False),
        ("volta_scudnn_128x128_relu_interior_nn_v1", False),
        ("kernel_17", None),
    ],
)
def test_tensor_cores_are_told_by_name(name: str, expected: bool | None) -> None:
    assert uses_tensor_cores(name) is expected


def test_fp32_data_on_tensor_cores_is_tf32() -> None:
    on_cores = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)"
    assert on_tensor_cores_in_tf32(on_cores)
    assert not on_tensor_cores_in_tf32("volta_sgemm_64x64_nt")
    assert math_of_dtype("c10::BFloat16") == "bf16"
    assert math_of_dtype("c10::Float8_e4m3fn") == "fp8"


def test_memory_efficient_attention_on_fp32_is_no_fast_path() -> None:
    assert not on_tensor_cores_in_tf32("fmha_cutlassF_f32_aligned_64x64_rf_sm80(P)")


def test_amd_matrix_cores_on_fp32_are_not_tf32() -> None:
    assert not on_tensor_cores_in_tf32("Cijk_Ailk_Bljk_S_B_Bias_MT16x16x128_MI16x16x1_SN")


def test_without_inputs_the_name_gives_the_format() -> None:
    assert math_in_name("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(P)") == "fp32"
    assert math_in_name("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64") == "bf16"
    assert math_in_name("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2") == "fp4"
    assert math_in_name("kernel_17") is None
