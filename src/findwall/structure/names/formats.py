"""The number format that a kernel's own name gives away.

Narrow formats come first: a name may also say what the kernel accumulates in.
"""

from __future__ import annotations

from findwall.structure.names.sources import (
    A100_DDP,
    B200_VLLM,
    H200,
    MI210,
    MI300X,
    RECSYS,
    UNSEEN,
    V100_RESNET,
)
from findwall.structure.names.table import NameRow, NameTable

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
