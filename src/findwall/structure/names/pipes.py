"""Whether a kernel's name shows that it runs on tensor (or matrix) cores."""

from __future__ import annotations

from findwall.structure.names.sources import (
    A100_DDP,
    B200_VLLM,
    H100_QWEN,
    H200,
    MI210,
    MI300X,
    MI300X_SGLANG,
    UNSEEN,
    V100_CNN,
    V100_DLRM,
    V100_RESNET,
)
from findwall.structure.names.table import NameRow, NameTable

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
