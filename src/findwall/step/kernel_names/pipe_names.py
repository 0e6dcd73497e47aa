"""The pipe and the number format that a kernel's name shows: tensor (or matrix) cores, bf16, fp8."""

from __future__ import annotations

from findwall.step.kernel_names.name_table import (
    A100_DDP,
    B200_VLLM,
    H100_QWEN,
    H200,
    MI210,
    MI300X,
    MI300X_SGLANG,
    RECSYS,
    UNSEEN,
    V100_CNN,
    V100_DLRM,
    V100_RESNET,
    NameRow,
    NameTable,
)

TENSOR_CORES: NameTable[bool] = NameTable(
    # First: such a name may carry the words of the tensor-core family it belongs to.
    NameRow(
        r"ffma|simt",
        False,
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)",
        f"CUTLASS and cuBLAS, the vector pipe: {H200}",
    ),
    NameRow(r"nvjet", True, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", f"cuBLAS: {H200}"),
    NameRow(
        r"tensorop|s1688|s16816|cutlass_\w*(?:h|s|i)\d{3,5}(?:gemm|fprop|dgrad|wgrad)|f16_s\d|fp16_s\d|"
        r"tma_warpspecialized",
        True,
        "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)",
        f"CUTLASS: {H200}, {A100_DDP}",
    ),
    NameRow(
        r"tensor16x8|tensor8x8|tf32f32|xmma\w*_(?:bf16|f16|tf32|e4m3|i8)|sm90_xmma|warpgroupsize",
        True,
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tensor16x8x8",
        f"cuBLAS and cuDNN: {A100_DDP}, {H200}",
    ),
    NameRow(
        r"sdpa_sm|wgmma",
        True,
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x128_1x4x1",
        f"cuDNN 9: {H200}",
    ),
    NameRow(
        r"flash_(?:fwd|bwd)|flash::",
        True,
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>()",
        f"FlashAttention 2: {H100_QWEN}",
    ),
    NameRow(
        r"fmha_cutlass[fb]_(?:f16|bf16)",
        True,
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>)",
        "torch's memory-efficient attention; its fp32 form is in the zoo, this one" + UNSEEN,
    ),
    NameRow(
        r"fmhasm|sm100|bmm_\w*mx?e\dm\d",
        True,
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        f"TensorRT-LLM: {B200_VLLM}",
    ),
    NameRow(
        r"_e4m3|_e5m2",
        True,
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*)",
        f"8-bit floats: {B200_VLLM}",
    ),
    NameRow(
        r"[hib]mma|[hs]884|h1688|i8816|i16832|s16832|[hib]16816|_[hf]16\w*gemm",
        True,
        "volta_h884gemm_128x64_ldg8_nn",
        "cuBLAS on Volta to Ampere: the instruction and its shape" + UNSEEN,
    ),
    NameRow(r"triton_tem", True, "triton_tem_fused_mm_3", "Inductor's matmul templates" + UNSEEN),
    NameRow(
        r"mfma|_mi\d+x\d+|^cijk(?:_.*)?_mi",
        True,
        "Cijk_Alik_Bljk_BBS_BH_MT256x192x64_MI16x16x1_SN",
        f"Tensile and aiter on AMD's matrix cores: {MI300X}, {MI300X_SGLANG}",
    ),
    NameRow(
        r"gtcx|xdlops",
        True,
        "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt64x64x64_wt16x16x16",
        f"MIOpen on AMD's matrix cores: {MI210}",
    ),
    # Tensile names the matrix instruction where it uses one.
    NameRow(
        r"^cijk_",
        False,
        "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1",
        "Tensile on AMD's vector units" + UNSEEN,
    ),
    NameRow(r"sgemm|dgemm|cgemm", False, "volta_sgemm_64x64_nt", f"cuBLAS: {V100_RESNET}"),
    NameRow(
        r"gemv|gemmsn|gemmk1|dot_kernel",
        False,
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(cublasGemvParams)",
        f"cuBLAS: {V100_DLRM}",
    ),
    NameRow(
        r"splitkreduce",
        False,
        "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>)",
        f"cuBLAS: {V100_RESNET}, {H200}",
    ),
    NameRow(r"scudnn", False, "volta_scudnn_128x64_relu_small_nn_v1", f"cuDNN: {V100_RESNET}"),
    NameRow(
        r"wgrad_alg\d|dgrad_engine",
        False,
        "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)",
        f"cuDNN: {V100_CNN}, {H200}",
    ),
    NameRow(
        r"fft2d",
        False,
        "void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)",
        f"cuDNN: {H200}",
    ),
    NameRow(
        r"fmha_cutlass[fb]_f32",
        False,
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
        f"torch's memory-efficient attention on fp32: {H200}",
    ),
    NameRow(
        r"vector_fp32|fprop_.*_f32f32_f32f32",
        False,
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x128x8",
        "cuDNN on fp32; those in our traces also say ffma",
    ),
)


# -- the number format that a kernel's own name gives away ------------------------------------------------
#
# Narrow formats come first: a name may also say what the kernel accumulates in.


FORMATS: NameTable[str] = NameTable(
    NameRow(
        r"e2m1|fp4",
        "fp4",
        "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2",
        f"TensorRT-LLM: {B200_VLLM}",
    ),
    NameRow(
        r"e4m3|e5m2|fp8|qmma",
        "fp8",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        f"TensorRT-LLM: {B200_VLLM}; FBGEMM: {RECSYS}",
    ),
    NameRow(
        r"i8816|i16832|_i8|imma|int8",
        "int8",
        "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        f"{A100_DDP}; the products by their instruction" + UNSEEN,
    ),
    NameRow(
        r"tf32",
        "tf32",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_warpgroupsize1x1x1",
        f"cuBLAS and cuDNN: {H200}, {A100_DDP}",
    ),
    # CUTLASS leaves the format out where tensor cores take fp32 data.
    NameRow(
        r"tensorop_s1688(?:gemm|fprop|dgrad|wgrad)",
        "tf32",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(Params)",
        f"CUTLASS: {RECSYS}",
    ),
    NameRow(
        r"bf16|bfloat|_b16",
        "bf16",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        f"cuBLAS, cuDNN and C++ types: {H200}",
    ),
    NameRow(
        r"bbs_bh|_b_bs_bh",
        "bf16",
        "Cijk_Alik_Bljk_BBS_BH_MT256x192x64_MI16x16x1_SN",
        f"Tensile: {MI300X}, {MI210}",
    ),
    NameRow(
        r"nvjet_(?:sm\d+_)?t",
        "bf16",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        f"cuBLAS: {H200}, {B200_VLLM}",
    ),
    NameRow(
        r"fp?16|half",
        "fp16",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64",
        f"cuDNN and C++ types: {H200}; volta_fp16_s884gemm_fp16 and its vector form sgemm_fp16" + UNSEEN,
    ),
    NameRow(
        r"nvjet_(?:sm\d+_)?h",
        "fp16",
        "nvjet_sm90_hsh_64x512_64x2_1x2_h_bz_coopB_NNT",
        f"cuBLAS: {H200}",
    ),
    NameRow(
        r"hmma|hgemm|h884|h1688",
        "fp16",
        "volta_h884gemm_128x64_ldg8_nn",
        "cuBLAS on Volta and Turing" + UNSEEN,
    ),
    NameRow(
        r"hhs_bh|_h_hs_bh",
        "fp16",
        "Cijk_Alik_Bljk_HHS_BH_MT256x128x32_MI32x32x8x1_SN",
        "Tensile; its bf16 form is in the MI300X traces, this one" + UNSEEN,
    ),
    NameRow(
        r"dgemm|double|f64|_dmma",
        "fp64",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<double>>(int)",
        f"C++ types: {RECSYS}; the products" + UNSEEN,
    ),
    NameRow(
        r"sgemm|scudnn|f32f32_f32f32|_f32_|fp32",
        "fp32",
        "volta_sgemm_64x64_nn",
        f"cuBLAS and cuDNN: {V100_RESNET}, {H200}",
    ),
    NameRow(
        r"float",
        "fp32",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)",
        f"C++ types: {H200}, {V100_RESNET}",
    ),
    NameRow(
        r"_s_b",
        "fp32",
        "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN",
        f"Tensile: {MI300X}",
    ),
)
