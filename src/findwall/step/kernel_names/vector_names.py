"""Names of kernels that compute element by element or row by row."""

from __future__ import annotations

from findwall.step.kernel_names.name_table import (
    A100_ALEXNET,
    A100_DDP,
    B200_VLLM,
    BY_HAND,
    H200,
    MI300X_NORMS,
    MI300X_SGLANG,
    RECSYS,
    UNSEEN,
    V100_CNN,
    V100_RESNET,
    NameRow,
)

# PyTorch's TensorIterator: one launcher for all elementwise work; the functor in its template tells which.
LAUNCHERS = (
    NameRow(
        r"at::native::reduce_kernel",
        "reduce",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()",
        H200,
    ),
    NameRow(
        r"^(?=.*elementwise_kernel).*(?:copy_kernel|direct_copy)",
        "copy",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(Iter&)>()",
        H200,
    ),
    NameRow(
        r"^(?=.*elementwise_kernel).*(?:gather|scatter|(?<!kernel_with_)index)",
        "gather",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<>>()",
        H200,
    ),
    NameRow(
        r"elementwise_kernel",
        "pointwise",
        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>()",
        H200,
    ),
)

# Before the embeddings: it turns queries and keys in place and looks nothing up but angles.
ROTARY = (
    NameRow(
        r"rotary_?emb",
        "pointwise",
        "void rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*)",
        f"vLLM and SGLang: {MI300X_SGLANG}",
    ),
)

SOFTMAX = (
    NameRow(
        r"soft_?max",
        "softmax",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*)",
        f"aten::_softmax: {H200}, {V100_RESNET}",
    ),
)

# Optimizers outside torch's multi-tensor launcher.
OPTIMIZERS = (
    NameRow(
        r"adam|lamb_?(?:stage|kernel)|fused_?sgd|fusedoptimizer",
        "optimizer",
        "void adam_cuda_kernel<float, c10::Half>(float*, c10::Half*)",
        "apex's own kernels" + UNSEEN,
    ),
    NameRow(r"lars|adagrad|rmsprop", "optimizer", "lars_update_kernel", BY_HAND),
)

NORMS = (
    NameRow(
        r"layer_?norm|rowwisemoments|gammabetabackward",
        "norm",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int)",
        f"aten::native_layer_norm: {H200}, {RECSYS}",
    ),
    NameRow(
        r"rms_?norm",
        "norm",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
        f"aiter and vLLM: {MI300X_SGLANG}, {B200_VLLM}",
    ),
    NameRow(
        r"batch_?norm",
        "norm",
        "void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float, float, 4>()",
        f"aten::native_batch_norm: {H200}; MIOpen: {MI300X_NORMS}",
    ),
    NameRow(
        r"bn_(?:fw|bw)|bn(?:fwd|bwd)",
        "norm",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
        f"cuDNN: {V100_CNN}, {A100_DDP}",
    ),
    NameRow(
        r"group_?norm|computefusedparams|computeinternalgradients",
        "norm",
        "void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>(long)",
        f"aten::native_group_norm: {MI300X_NORMS}",
    ),
    NameRow(
        r"ln_(?:fwd|bwd)",
        "norm",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<float>>(KernelParams)",
        "Transformer Engine" + UNSEEN,
    ),
    NameRow(
        r"instance_?norm|normalization|cunormalize|welford",
        "norm",
        "void welford_kernel<float, float, float>(float const*, float*)",
        "apex's SyncBatchNorm, and plain words" + UNSEEN,
    ),
)

REDUCTIONS = (
    NameRow(
        r"nll_loss|nllcriterion|nllloss|cross_?entropy|ctc_loss",
        "reduce",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>()",
        f"aten::nll_loss: {H200}, {V100_RESNET}",
    ),
    NameRow(
        r"pool",
        "reduce",
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
        f"aten::max_pool2d: {A100_ALEXNET}, {H200}",
    ),
    NameRow(
        r"tensor_kernel_scan",
        "reduce",
        "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float const*)",
        f"aten::cumsum and its like: {H200}",
    ),
    NameRow(
        r"reduce|mean_kernel|sum_kernel|norm_kernel|norm2|lpnorm|cumsum|argmax|cleanup",
        "reduce",
        "argmax_kernel",
        BY_HAND,
    ),
)

ELEMENTWISE = (
    NameRow(
        r"distribution_|elementwise",
        "pointwise",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>()",
        f"aten::normal_ and its like: {H200}, {MI300X_NORMS}",
    ),
    NameRow(
        r"dropout",
        "pointwise",
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, 1, 4>()",
        f"aten::native_dropout: {A100_ALEXNET}",
    ),
    NameRow(
        r"triu|tril",
        "pointwise",
        "void at::native::triu_tril_kernel<bool, int, false, 8, false>()",
        f"aten::triu: {H200}",
    ),
    NameRow(
        r"act_and_mul",
        "pointwise",
        "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
        MI300X_SGLANG,
    ),
    NameRow(
        r"quant",
        "pointwise",
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*)",
        f"{B200_VLLM}; FBGEMM: {RECSYS}",
    ),
    NameRow(
        r"optensor|addtensor|scalepackedtensor",
        "pointwise",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)",
        f"cuDNN: {V100_CNN}",
    ),
    NameRow(
        r"pointwise",
        "pointwise",
        "void kernelPointwiseApply2<TensorSigmoidOp<float>, float, float, unsigned int, -2, -2>()",
        "torch before 1.0" + UNSEEN,
    ),
    NameRow(
        r"fill",
        "pointwise",
        "__amd_rocclr_fillBufferAligned.kd",
        "ROCm's runtime, where a memset runs as a kernel" + UNSEEN,
    ),
    NameRow(
        r"arange|linspace|where_kernel|silu|gelu|relu|sigmoid|upsample|interpolate|softplus|philox|bernoulli|"
        r"normal_|rotary|rope",
        "pointwise",
        "void at::native::(anonymous namespace)::upsample_bilinear2d_out_frame<float, float>(int)",
        BY_HAND,
    ),
)
