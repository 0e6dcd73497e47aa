"""Names of kernels that multiply matrices: products, convolutions, attention."""

from __future__ import annotations

from findwall.step.kernel_names.name_table import (
    A100_ALEXNET,
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
)

ATTENTION = (
    NameRow(
        r"sdpa",
        "attention",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64",
        f"cuDNN 9: {H200}",
    ),
    NameRow(
        r"compute_dot_do_o|convert_dq",
        "attention",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)",
        f"cuDNN 9, around its backward: {H200}",
    ),
    NameRow(
        r"flash_|flash::|flashattn",
        "attention",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>()",
        f"FlashAttention 2: {H100_QWEN}",
    ),
    NameRow(
        r"fmha|mha_(?:fwd|bwd|fprop|bprop)|paged_?kv",
        "attention",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        f"TensorRT-LLM: {B200_VLLM}; memory-efficient attention: {H200}",
    ),
    NameRow(
        r"attention",
        "attention",
        "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128, 128, 256>()",
        f"aiter: {MI300X_SGLANG}",
    ),
    NameRow(r"attn", "attention", "attn_fwd", f"Triton, through AOTriton: {MI300X}"),
    NameRow(
        r"(?:prefill|decode)with\w*kvcache",
        "attention",
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<(MaskMode)1, 128u>>()",
        "FlashInfer" + UNSEEN,
    ),
    NameRow(
        r"mergestates?(?:inplace)?kernel",
        "attention",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u, __nv_bfloat16>()",
        "FlashInfer, joining the parts of a split cache" + UNSEEN,
    ),
    NameRow(
        r"_fwd_(?:grouped_)?kernel_stage\d",
        "attention",
        "_fwd_grouped_kernel_stage1",
        "SGLang's decoding in Triton" + UNSEEN,
    ),
    NameRow(
        r"mla_reduce|mla_decode|mla_prefill",
        "attention",
        "void kn_mla_reduce_v1<MlaReduceKernelV1Traits<512, 128, 1>, float, __hip_bfloat16>()",
        "aiter's latent attention" + UNSEEN,
    ),
)

CONVOLUTIONS = (
    NameRow(
        r"implicit_?gemm",
        "conv",
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64",
        f"cuDNN 9: {H200}; {A100_DDP}",
    ),
    NameRow(
        r"convolv",
        "conv",
        "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
        f"cuDNN: {V100_RESNET}",
    ),
    NameRow(
        r"scudnn",
        "conv",
        "volta_scudnn_128x64_relu_small_nn_v1",
        f"cuDNN: {V100_RESNET}, {V100_CNN}",
    ),
    NameRow(
        r"winograd|generatewino",
        "conv",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(WinogradDataParams)",
        f"cuDNN: {V100_CNN}",
    ),
    NameRow(
        r"fft2d|fft1d_|gcgemm",
        "conv",
        "void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*)",
        f"cuDNN's convolution by Fourier transform: {A100_ALEXNET}, {H200}",
    ),
    NameRow(
        r"wgrad|dgrad|fprop",
        "conv",
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x256_32x4_nhwc>()",
        f"cuDNN with CUTLASS: {A100_DDP}",
    ),
    NameRow(
        r"cudnn::cnn|cudnn::(?:detail|gemm)::|cask_cudnn|cudnn_.*conv",
        "conv",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, float, float>(int)",
        "cuDNN 8 and 9: grouped convolutions" + UNSEEN,
    ),
    NameRow(
        r"igemm_",
        "conv",
        "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt32x256x32",
        f"MIOpen: {MI210}",
    ),
    NameRow(
        r"miopen(?:conv|sp3)|xdlops.*conv",
        "conv",
        "miopenSp3AsmConv_v21_1_3_gfx9_fp32_f2x3_stride1",
        "MIOpen, Winograd in assembly" + UNSEEN,
    ),
    NameRow(
        r"depthwise",
        "conv",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>()",
        "aten::_conv_depthwise2d" + UNSEEN,
    ),
    NameRow(
        r"conv2?d?_|conv3d|convolution|direct_conv",
        "conv",
        "naive_conv_ab_nonpacked_fwd_nchw_half_double_half",
        "MIOpen's naive convolution, and plain words" + UNSEEN,
    ),
)

# Of a recurrent network all kernels belong to its products, the sums over gates too: they are steps of one
# recurrence, and no compiler could fuse them.
RECURRENCES = (
    NameRow(
        r"rnn_blockpersist|persistrnn",
        "matmul",
        "void RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 128>()",
        "cuDNN 8 and 9" + UNSEEN,
    ),
    NameRow(
        r"elemwisernncell|(?:rnn|lstm|gru)_elementwise_[fb]p",
        "matmul",
        "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int)",
        "cuDNN 7 to 9" + UNSEEN,
    ),
    NameRow(
        r"(?:lstm|gru)(?:fwd|bwd)hidupdate",
        "matmul",
        "LSTMFwdHidUpdate",
        "MIOpen" + UNSEEN,
    ),
)

PRODUCTS = (
    NameRow(
        r"nvjet",
        "matmul",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        f"cuBLAS on Hopper and Blackwell: {H200}, {B200_VLLM}",
    ),
    NameRow(
        r"splitk_?reduce",
        "matmul",
        "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>)",
        f"cuBLAS: {V100_RESNET}, {H200}",
    ),
    NameRow(
        r"epilogue::impl::globalkernel",
        "matmul",
        "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*)",
        f"cuBLASLt: {A100_ALEXNET}",
    ),
    NameRow(
        r"dot_?kernel|reduce_1block_kernel",
        "matmul",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const> > >()",
        f"cuBLAS: {V100_DLRM}",
    ),
    NameRow(
        r"gemv",
        "matmul",
        "void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024, cublasGemvParams<float const>>()",
        f"cuBLAS: {RECSYS}",
    ),
    NameRow(
        r"cijk_",
        "matmul",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
        f"Tensile, in hipBLASLt and rocBLAS: {MI300X}, {MI210}",
    ),
    NameRow(
        r"bmm_",
        "matmul",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16",
        f"TensorRT-LLM's batched products for experts: {B200_VLLM}",
    ),
    NameRow(
        r"marlin",
        "matmul",
        "void marlin::Marlin<__nv_bfloat16, 1125899906909960, 256, 1, 8, 8, 4>(int4 const*)",
        "Marlin, in vLLM and SGLang" + UNSEEN,
    ),
    NameRow(
        r"fused_moe|moe_kernel|w8a8",
        "matmul",
        "fused_moe_kernel",
        "Triton, in vLLM and SGLang" + UNSEEN,
    ),
    NameRow(
        r"fmoe_|mfma_moe",
        "matmul",
        "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x512E",
        "aiter's experts in one kernel" + UNSEEN,
    ),
    NameRow(
        r"scaled_mm|grouped_mm|(?:^|_)mm(?:_|$)|matmul",
        "matmul",
        "scaled_mm_kernel",
        "Triton, in vLLM, and plain words" + UNSEEN,
    ),
    NameRow(
        r"gemm|xmma_|wmma|cublas",
        "matmul",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_aligna4_execute_kernel__5x_cublas",
        f"cuBLAS: {H200}",
    ),
    # Not attention built on CUTLASS.
    NameRow(
        r"cutlass(?!.*fmha)",
        "matmul",
        "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<MatrixShape>>()",
        f"CUTLASS in cuDNN: {H200}, {A100_DDP}",
    ),
    NameRow(
        r"trsm|triangular",
        "matmul",
        "void trsm_left_kernel<float, 256, 4, false, false, false, true, true>(cublasTrsmParams<float>)",
        "cuBLAS's triangular solve" + UNSEEN,
    ),
)
