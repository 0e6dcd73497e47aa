"""What kind of kernel a name stands for, whether it runs on tensor cores, and in which number format.

The class is a property of the kernel: cuDNN launches its own layout kernels inside a convolution, and
those are copies. Only where a name says nothing does the op that launched it decide.
"""

from __future__ import annotations

import functools
import re

from findwall.model.catalogue import KERNEL_CLASSES
from findwall.model.events import Extra, Kind
from findwall.model.machine import MATH_TYPES

CLASS_INDEX = {name: index for index, name in enumerate(KERNEL_CLASSES)}
MATH_INDEX = {name: index for index, name in enumerate(MATH_TYPES)}

# First match wins, on the lower-case name. The order matters: a layout kernel inside a library names the
# library too, and an attention kernel is full of the word gemm.
_KERNEL_RULES: tuple[tuple[str, str], ...] = (
    (
        "collective",
        r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem_|nvshmem|"
        r"cross_device_reduce|deep_?ep|symm_mem|mscclpp?|one_shot_|two_shot_",
    ),
    (
        "copy",
        r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|batched_transpose|converttensor|transpose_readwrite|"
        r"subtensoropwithcast|subtensoropwithscalar|castkernel|catarray|direct_copy_kernel|"
        r"(?:bfloat16|float16|float8|half)\w*_copy_kernel|_copy_kernel|transpose_kernel|im2col|col2im|"
        r"copydevicetodevice|scal_kernel|reshape_and_cache|tonhwckernel|permute_kernel|copybuffer|"
        r"split_with_sizes_copy|cudnn::ops::scaletensor|quantize_with_block_size|padding_?kernel|addpadding|fp8rowwise_to_float",
    ),
    ("other", r"offsetskernel|offsets_range"),
    ("gather", r"split_embedding|embedding|moe::dev::|permute_pooled|rowwise_adagrad"),
    ("softmax", r"soft_?max"),
    (
        "optimizer",
        r"adam|lamb_?(?:stage|kernel)|lars|adagrad|rmsprop|fusedsgd|fused_?sgd|fusedoptimizer|fused_adam|"
        r"multi_tensor_apply|distributed_adam|triton_for_fused",
    ),
    (
        "attention",
        r"flash_|flashattn|fmha|sdpa|attention|attn|mha_(?:fwd|bwd|fprop|bprop)|compute_dot_do_o|"
        r"convert_dq|fmhakernel|efficient_attn|paged_?kv|flash::|fusedattention|ck_tile::.*fmha",
    ),
    (
        "norm",
        r"layer_?norm|rms_?norm|batch_?norm|group_?norm|rowwisemoments|bn_(?:fw|bw)|cunormalize|"
        r"gammabetabackward|miopenbatchnorm|bn(?:fwd|bwd)|instance_?norm|computefusedparams|"
        r"computeinternalgradients|normalization|ln_(?:fwd|bwd)|"
        r"nhwc_batchnorm|welford",
    ),
    (
        "conv",
        r"implicit_?gemm|implicit_?convolve|wgrad|dgrad|fprop|winograd|conv2?d?_|conv3d|convolv|depthwise|"
        r"fft2d|fft1d_|gcgemm|cudnn.*scudnn|scudnn|cudnn_.*conv|igemm_|miopen(?:conv|sp3)|im2col|conv_|"
        r"convolution|direct_conv|cudnn::cnn|computeoffsetskernel|generatewino|cask_cudnn|xdlops.*conv|"
        r"cudnn::(?:detail|gemm)::",
    ),
    (
        "matmul",
        r"gemm|gemv|nvjet|xmma_|cijk_|matmul|cublas|splitkreduce|splitk_reduce|cutlass(?!.*fmha)|"
        r"(?:^|_)mm(?:_|$)|bmm_|dot_kernel|dotkernel|wmma|marlin|deep_gemm|w8a8|scaled_mm|triton_tem|"
        r"grouped_mm|fused_moe|moe_kernel|epilogue::impl::globalkernel|reduce_1block_kernel|trsm|triangular",
    ),
    (
        "gather",
        r"embedding|index|gather|scatter|embed|lookup|krn_partial|segment_reduce|take_kernel|rotary_embedding|"
        r"permute_pooled|permute_2d|permute_1d|lxu_cache|compute_grad_weight|sum_and_scatter|"
        r"moe::dev::|finalizekernel|expandinputrows|moe_align|topk_?gating",
    ),
    (
        "other",
        r"radixsort|radix_sort|sort|topk|cub::|thrust|rocprim|hipcub|unique|nonzero|searchsorted|bucketize|"
        r"multinomial|histogram|scan_kernel|prefix_sum|cholesky|getrf|geqrf|spin_kernel",
    ),
    (
        "reduce",
        r"reduce|nll_loss|nllcriterion|nllloss|cross_?entropy|pool|mean_kernel|sum_kernel|norm_kernel|norm2|ctc_loss|argmax|"
        r"lpnorm|cumsum|lpmaxcleanup|cleanup",
    ),
    (
        "pointwise",
        r"elementwise|pointwise|dropout|distribution_|fill|triu|tril|arange|linspace|where_kernel|"
        r"act_and_mul|silu|gelu|relu|sigmoid|upsample|interpolate|softplus|philox|bernoulli|normal_|"
        r"quant|kernelpointwiseapply|foreach|rotary|rope|optensor|addtensor|scalepackedtensor",
    ),
)
_RULES = tuple((name, re.compile(pattern)) for name, pattern in _KERNEL_RULES)

# For names that say nothing: the op's own word.
_OP_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        (
            "collective",
            r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|c10d::|nccl:|record_param_comms",
        ),
        ("attention", r"attention|flash_attn|sdpa"),
        ("softmax", r"softmax"),
        ("norm", r"norm(?!al)"),
        ("conv", r"convolution|conv\dd|conv_"),
        (
            "matmul",
            r"(?:^|[:_])(?:add)?b?(?:add)?(?:mm|mv|matmul|linear|bilinear|dot|einsum)(?:$|_)|_int_mm|moe",
        ),
        ("optimizer", r"_fused_(?:adam|sgd|adagrad)|foreach|optimizer|apply_?optimizer"),
        ("gather", r"embedding|index|gather|scatter|take|lookup"),
        ("copy", r"copy|clone|contiguous|cat$|stack|_to_copy|pad|roll|flip|repeat"),
        ("reduce", r"sum|mean|reduce|loss|max_pool|avg_pool|argmax|amax|amin|std|var"),
        ("other", r"sort|topk|unique|nonzero|multinomial"),
        (
            "pointwise",
            r"add|mul|div|sub|gelu|relu|silu|tanh|sigmoid|exp|pow|where|masked_fill|dropout|fill|zero|"
            r"clamp|sqrt|neg|uniform|normal|bernoulli|random",
        ),
    )
)


_TELLING = 320  # characters: what follows repeats the template in the parameters


def telling_part(kernel_name: str) -> str:
    """The lower-case name without its parameter list."""
    if kernel_name.startswith("_Z"):  # mangled: the word that tells may come last
        return kernel_name.lower()
    # A return type such as enable_if<(8 > (0))> has brackets of its own.
    end = -1 if kernel_name.startswith("std::") else kernel_name.find(">(", 0, _TELLING)
    return kernel_name[: end + 1 if end > 0 else _TELLING].lower()


def classify(kernel_name: str, op_name: str | None, kind: Kind, extra: Extra | None = None) -> str:
    """One of `KERNEL_CLASSES`."""
    if kind == Kind.MEMCPY:
        # Inside the device a memcpy is one more copy kernel; across the link it is a transfer.
        inside = "dtod" in kernel_name.lower() or "device -> device" in kernel_name.lower()
        return "copy" if inside else "memcpy"
    if kind == Kind.MEMSET:
        return "memcpy"
    if extra is not None and extra.collective:
        return "collective"
    return _classify_kernel(kernel_name, op_name)


@functools.lru_cache(maxsize=65536)
def _classify_kernel(kernel_name: str, op_name: str | None) -> str:
    name = telling_part(kernel_name).replace("fbgemm", "")
    if name.startswith("triton_"):
        return _compiled_class(name)
    if "multi_tensor_apply" in name or "foreach" in name:
        return _multi_tensor_class(name, op_name)
    if "reduce_kernel" in name and "at::native::reduce_kernel" in name:
        return "reduce"
    if "elementwise_kernel" in name:
        return _elementwise_class(name)
    for found, pattern in _RULES:
        if pattern.search(name):
            return found
    return op_class(op_name) or "other"


@functools.lru_cache(maxsize=65536)
def op_class(op_name: str | None) -> str | None:
    """The class an op's name suggests, for kernels whose own name says nothing."""
    if not op_name:
        return None
    name = op_name.lower()
    for found, pattern in _OP_RULES:
        if pattern.search(name):
            return found
    return None


def _elementwise_class(name: str) -> str:
    """TensorIterator kernels: the functor tells a copy or an index from arithmetic."""
    if "copy_kernel" in name or "direct_copy" in name:
        return "copy"
    if "gather" in name or "scatter" in name or "index" in name.replace("kernel_with_index", ""):
        return "gather"
    return "pointwise"


def _multi_tensor_class(name: str, op_name: str | None) -> str:
    """Foreach kernels are an optimizer's or a gradient clipper's; only their norms reduce."""
    if "norm" in name or "cleanup" in name or (op_name or "").endswith("_foreach_norm"):
        return "reduce"
    if "copy" in name and "_copy" in (op_name or ""):
        return "copy"
    return "optimizer"


_LAYOUT_ONLY = {
    "to",
    "copy",
    "clone",
    "cat",
    "view",
    "unsafe",
    "transpose",
    "permute",
    "stack",
    "t",
    "contiguous",
    "expand",
    "slice",
    "unsqueeze",
    "squeeze",
    "split",
    "select",
    "alias",
}


def _compiled_class(name: str) -> str:
    """Inductor writes the fused ops into the name: triton_red_fused_add_mean_pow_3."""
    if "attention" in name or "attn" in name:
        return "attention"
    if name.startswith(("triton_tem", "triton_mm", "triton_bmm", "triton_gemm")):
        return "conv" if "convolution" in name else "matmul"
    if name.startswith("triton_for"):
        return "optimizer"
    if "_fused" not in name:
        return "pointwise"
    words = [word for word in name.split("_fused", 1)[1].split("_") if word and not word.isdigit()]
    if "softmax" in words:
        return "softmax"
    if name.startswith(("triton_red", "triton_per", "triton_split_scan", "triton_mix")):
        normalises = "norm" in words or ("rsqrt" in words and ("mean" in words or "var" in words))
        return "norm" if normalises else "reduce"
    if words and set(words) <= _LAYOUT_ONLY:
        return "copy"
    if "embedding" in words or "index" in words or "gather" in words or "scatter" in words:
        return "gather"
    return "pointwise"


_TENSOR_CORE = re.compile(
    r"nvjet|tensorop|tensor16x8|tensor8x8|wgmma|[hib]mma|h884|h1688|i8816|i16832|s1688|s16816|s16832|[hib]16816|"
    r"f16_s\d|bf16_s\d|fp16_s\d|_e4m3|_e5m2|tf32f32|mfma|_mi\d+x\d+|flash_(?:fwd|bwd)|flash::|fmhasm|"
    r"cutlass_\w*(?:h|s|i)\d{3,5}(?:gemm|fprop|dgrad|wgrad)|xmma\w*_(?:bf16|f16|tf32|e4m3|i8)|fmha_cutlass[fb]_(?:f16|bf16)|"
    r"sm90_xmma|sm100|sdpa_sm|gtcx|xdlops|warpgroupsize|triton_tem|bmm_\w*mx?e\dm\d|_[hf]16\w*gemm|tma_warpspecialized"
)
_VECTOR = re.compile(
    r"simt|sgemm|dgemm|ffma|scudnn|implicit_convolve_sgemm|fmha_cutlass[fb]_f32|gemv|gemmsn|gemmk1|dot_kernel|"
    r"wgrad_alg\d|dgrad_engine|fft2d|cgemm|gcgemm|splitkreduce|vector_fp32|fprop_.*_f32f32_f32f32"
)


@functools.lru_cache(maxsize=65536)
def uses_tensor_cores(kernel_name: str) -> bool | None:
    """None where the name does not tell."""
    name = telling_part(kernel_name)
    if "ffma" in name or "simt" in name:
        return False
    if _TENSOR_CORE.search(name):
        return True
    if name.startswith("cijk_"):
        return "_mi" in name or "mfma" in name
    return False if _VECTOR.search(name) else None


_DTYPE_MATH = {
    "double": "fp64",
    "float": "fp32",
    "c10::half": "fp16",
    "half": "fp16",
    "c10::bfloat16": "bf16",
    "bfloat16": "bf16",
    "signed char": "int8",
    "unsigned char": "int8",
    "c10::complex<float>": "fp32",
    "c10::complex<double>": "fp64",
}


def math_of_dtype(dtype: str) -> str | None:
    """The format a tensor's type is computed in; fp32 here means the data, not the pipe."""
    dtype = dtype.lower()
    if "float8" in dtype:
        return "fp8"
    if "float4" in dtype:
        return "fp4"
    return _DTYPE_MATH.get(dtype)


_NAME_MATH = (
    ("fp4", re.compile(r"e2m1|fp4")),
    ("fp8", re.compile(r"e4m3|e5m2|fp8|qmma")),
    ("int8", re.compile(r"i8816|i16832|_i8|imma|int8")),
    ("tf32", re.compile(r"tf32|tensorop_s1688(?:gemm|fprop|dgrad|wgrad)|tensorop_s1688\w*_tf32")),
    ("bf16", re.compile(r"bf16|bfloat|_b16|bbs_bh|_b_bs_bh|nvjet_(?:sm\d+_)?t")),
    ("fp16", re.compile(r"f16|half|hmma|hgemm|h884|h1688|hhs_bh|_h_hs_bh|nvjet_(?:sm\d+_)?h")),
    ("fp64", re.compile(r"dgemm|double|f64|_dmma")),
    ("fp32", re.compile(r"sgemm|f32f32_f32f32|float|scudnn|_s_b|fp32|_f32_")),
)


@functools.lru_cache(maxsize=65536)
def math_in_name(kernel_name: str) -> str | None:
    """The format a kernel's own name gives away."""
    name = telling_part(kernel_name)
    for found, pattern in _NAME_MATH:
        if pattern.search(name):
            return found
    return None


def on_tensor_cores_in_tf32(kernel_name: str) -> bool:
    """Whether a kernel on fp32 data uses tensor cores at one pass a product.

    Memory-efficient attention on fp32 data splits each product in three tf32 ones to keep fp32's accuracy:
    it is no faster than the vector pipe.
    """
    name = telling_part(kernel_name)
    if "fmha_cutlass" in name:
        return False
    if name.startswith(
        ("cijk_", "igemm_")
    ):  # AMD's matrix cores take fp32 as it is; only xf32 is the short form
        return "xf32" in name or "_mx" in name
    return uses_tensor_cores(kernel_name) is True
