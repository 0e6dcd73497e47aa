"""Names of kernels that move, look up or order: nothing is computed."""

from __future__ import annotations

from findwall.step.kernel_names.name_table import (
    B200_VLLM,
    BY_HAND,
    H200,
    MI210,
    MI300X_SGLANG,
    RECSYS,
    UNSEEN,
    V100_CNN,
    V100_DLRM,
    V100_RESNET,
    NameRow,
)

COLLECTIVES = (
    NameRow(
        r"nccl|rccl",
        "collective",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        f"NCCL 2.x: {B200_VLLM}",
    ),
    NameRow(
        r"multimem_|symm_mem|one_shot_|two_shot_",
        "collective",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        f"torch's symmetric memory: {B200_VLLM}",
    ),
    NameRow(
        r"cross_device_reduce",
        "collective",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "vLLM's and SGLang's custom all-reduce" + UNSEEN,
    ),
    NameRow(
        r"deep_?ep|nvshmem|mori::",
        "collective",
        "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)",
        "DeepEP, NVSHMEM on which it stands, and AMD's MORI: tokens to experts on other GPUs" + UNSEEN,
    ),
    NameRow(
        # Forks keep the kernels' own names: a template called so, or their notices ahead of it.
        r"(?:intranode|internode|internode_ll|low_latency)::(?:\w*dispatch|\w*combine|\w*barrier)"
        r"|\b(?:cached_)?notify_(?:dispatch|combine)\b|^(?:void )?[\w:]*::(?:dispatch|combine)<"
        r"|\bep(?:dispatch|combine)\w*kernel",
        "collective",
        "void uccl::internode::dispatch<false, 2, false, __nv_bfloat16>(void*)",
        "DeepEP's kernels in forks under other namespaces, and MORI's" + UNSEEN,
    ),
    NameRow(
        r"msccl",
        "collective",
        "mscclKernel_Sum_half_Simple_false",
        "RCCL's MSCCL, and MSCCL++; the entry point is named in RCCL's msccl_kernel.h" + UNSEEN,
    ),
    NameRow(
        r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|sendrecv",
        "collective",
        "reduce_scatter_kernel",
        BY_HAND,
    ),
)

# Moving or casting without arithmetic. Ahead of the libraries: cuDNN launches some inside a convolution.
COPIES = (
    NameRow(
        r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|tonhwckernel",
        "copy",
        "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>(cudnn::ops::nhwc2nchw_params_t)",
        f"cuDNN: {V100_CNN}",
    ),
    NameRow(
        r"padding_?kernel|addpadding",
        "copy",
        "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true>(int)",
        f"cuDNN: {H200}",
    ),
    NameRow(
        r"im2col|col2im",
        "copy",
        "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params)",
        f"cuDNN: {V100_RESNET}",
    ),
    NameRow(
        r"batched_transpose",
        "copy",
        "batched_transpose_16x64_pack_1x4_ediv_1x2_half",
        f"MIOpen: {MI210}",
    ),
    NameRow(
        r"subtensoropwithcast|subtensoropwithscalar",
        "copy",
        "SubTensorOpWithCastTensor1d",
        f"MIOpen: {MI210}",
    ),
    NameRow(
        r"catarray",
        "copy",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, 4, 64, 64>()",
        f"aten::cat: {H200}",
    ),
    NameRow(
        r"split_with_sizes_copy",
        "copy",
        "void at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel<char>(char**)",
        "aten::split_with_sizes_copy, as FSDP2 calls it" + UNSEEN,
    ),
    NameRow(
        r"scal_kernel",
        "copy",
        "void scal_kernel<float, float, 1, true, 6, 5, 5, 3>(cublasTransposeParams<float>)",
        f"cuBLAS: {H200}",
    ),
    NameRow(
        r"transpose_readwrite",
        "copy",
        "void transpose_readWrite_alignment_kernel<float2, float2, 1, false, 6, 4, 4>(cublasTransposeParams)",
        "cuBLAS" + UNSEEN,
    ),
    NameRow(
        r"reshape_and_cache",
        "copy",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(__nv_bfloat16 const*)",
        B200_VLLM,
    ),
    NameRow(
        r"store_kv_?cache|concat_and_cache|set_mla_kv_buffer",
        "copy",
        "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>(StoreKVCacheParam)",
        f"SGLang: {MI300X_SGLANG}; vLLM's cache of latent attention",
    ),
    NameRow(
        r"quantize_with_block_size",
        "copy",
        "void tensorrt_llm::kernels::quantize_with_block_size<(ScaleType)2, __nv_bfloat16, 32, true>()",
        f"TensorRT-LLM: {B200_VLLM}",
    ),
    NameRow(
        r"fp8rowwise_to_float",
        "copy",
        "void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<float>()",
        RECSYS,
    ),
    NameRow(
        r"copybuffer|copydevicetodevice",
        "copy",
        "__amd_rocclr_copyBuffer",
        "ROCm's runtime, where a memcpy runs as a kernel" + UNSEEN,
    ),
    NameRow(
        r"_copy_kernel|castkernel|transpose_kernel|permute_kernel|converttensor|cudnn::ops::scaletensor",
        "copy",
        "void transpose_kernel<float>(float*, float const*)",
        BY_HAND,
    ),
)

# Bookkeeping that would otherwise read as its library: nothing of the tensors goes through it.
BOOKKEEPING = (
    NameRow(
        r"offsetskernel",
        "other",
        "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
        f"cuDNN: {V100_RESNET}",
    ),
    NameRow(
        r"offsets_range",
        "other",
        "void fbgemm_gpu::_offsets_range_cuda_kernel<int>(long, long, int const*, int*)",
        RECSYS,
    ),
)

# Before the optimizers: FBGEMM's embedding backward applies Adagrad as it scatters, and says so.
EMBEDDINGS = (
    NameRow(
        r"embedding|rowwise_adagrad",
        "gather",
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<c10::Half>()",
        f"FBGEMM and aten::embedding: {RECSYS}, {V100_DLRM}",
    ),
    NameRow(
        r"permute_pooled",
        "gather",
        "void permute_pooled_embs_kernel<float>(float const*, long const*)",
        RECSYS,
    ),
    NameRow(
        r"moe::dev::",
        "gather",
        "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<bfloat16_t>>()",
        f"TensorRT-LLM's routing: {B200_VLLM}",
    ),
)

GATHERS = (
    NameRow(
        r"index",
        "gather",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, 2, 2, -2>()",
        f"aten::index_select and aten::index: {RECSYS}, {V100_DLRM}",
    ),
    NameRow(
        r"gather|scatter",
        "gather",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)",
        f"aten::gather and aten::embedding: {H200}, {B200_VLLM}",
    ),
    NameRow(
        r"compute_grad_weight|krn_partial|segment_reduce",
        "gather",
        "void at::native::(anonymous namespace)::krn_partials_per_segment<long>(long*, long const*)",
        f"aten::embedding_dense_backward: {H200}",
    ),
    NameRow(
        r"permute_[12]d",
        "gather",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>()",
        RECSYS,
    ),
    NameRow(
        r"lxu_cache",
        "gather",
        "void lxu_cache_lookup_kernel<long>(at::PackedTensorAccessor32<long, 1, at::RestrictPtrTraits>)",
        "FBGEMM's cache of embedding rows" + UNSEEN,
    ),
    NameRow(
        r"finalizekernel|expandinputrows|moe_align|topk_?gating|moe_?sort|moe_fused_gate|grouped_?topk",
        "gather",
        "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*)",
        "vLLM and TensorRT-LLM, sending tokens to experts" + UNSEEN,
    ),
    NameRow(r"embed|lookup|take_kernel", "gather", "lookup_rows_kernel", BY_HAND),
)

# Before the gathers: such a kernel looks through whole rows for the values that it then hands over.
SELECTIONS = (
    NameRow(
        r"(?:sb|mb)topk::|gather(?:topk|median|kthvalue)|compute_mode",
        "other",
        "void at::native::(anonymous namespace)::gatherMedian<float, unsigned int, 2>()",
        f"aten::median, kthvalue, topk and mode: {H200}",
    ),
    NameRow(
        r"fill_(?:index_and_segment|reverse_indices)",
        "other",
        "void at::native::(anonymous namespace)::fill_index_and_segment_kernel(int2*, int, IntDivider<uint>)",
        "aten::sort of long rows" + UNSEEN,
    ),
)

SORTS = (
    NameRow(
        r"cub::|thrust|hipcub",
        "other",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy>()",
        f"CUB, under aten::sort, unique and nonzero: {H200}, {RECSYS}",
    ),
    NameRow(
        r"rocprim",
        "other",
        "void rocprim::ROCPRIM_400200_NS::detail::trampoline_kernel<default_config, long>()",
        f"rocPRIM: {MI300X_SGLANG}",
    ),
    NameRow(
        r"spin_kernel",
        "other",
        "at::cuda::(anonymous namespace)::spin_kernel(long)",
        "torch.cuda._sleep" + UNSEEN,
    ),
    NameRow(
        r"sort|topk|unique|nonzero|bucketize|multinomial|histogram|scan_kernel|prefix_sum|"
        r"cholesky|getrf|geqrf",
        "other",
        "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, long, long, at::native::LTOp<long, true>>()",
        "aten::sort of short rows, and plain words" + UNSEEN,
    ),
)
