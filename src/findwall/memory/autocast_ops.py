"""What autocast makes of an op's result, by the op's name, and what else a name says of numbers."""

from __future__ import annotations

import re

# C++ names an op with its overload, a trace does not: `add_Tensor` is `add`, `sum_dim_IntList` is `sum`.
_OVERLOAD = re.compile(r"_(?:Tensor|Scalar|int|dim|dim_IntList|input|data|vec|Tensor_out|out)$")


def named(ops: frozenset[str]) -> frozenset[str]:
    """These ops, and each without its overload."""
    return ops | {_OVERLOAD.sub("", one) for one in ops}


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# As torch's own lists of autocast name them.
NARROW = _names(
    "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution "
    "_convolution addmm addmv addr matmul einsum mm mv linear addbmm baddbmm bmm chain_matmul "
    "linalg_multi_dot prelu lstm gru lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _cudnn_rnn "
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell scaled_dot_product_attention"
)
WIDE = _names(
    "binary_cross_entropy_with_logits mse_loss nll_loss nll_loss_nd cross_entropy_loss l1_loss "
    "smooth_l1_loss huber_loss kl_div prod cdist grid_sampler"
)
WIDE_ON_DEVICES = _names(
    "exp log pow rsqrt reciprocal softplus layer_norm native_layer_norm rms_norm group_norm softmax "
    "log_softmax cumsum cumprod norm sum logsumexp upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "dist"
)
KEEPS_ITS_RESULT = frozenset(
    ("softmax", "log_softmax", "exp", "sigmoid", "tanh", "relu", "threshold")
)  # for its own backward
# What backward needs is what they read: a copy in fp32 where that is narrow.
KEEPS_ITS_INPUT = _names("layer_norm native_layer_norm rms_norm group_norm pow log softplus norm nll_loss")
# Asks log_softmax for the format that it is given, and autocast leaves that as it is.
CROSS_ENTROPY = "cross_entropy_loss"
LOG_SOFTMAX = frozenset(("log_softmax", "_log_softmax"))
NLL_BACKWARD = frozenset(("nll_loss_backward", "nll_loss2d_backward"))
WIDE_IN_BACKWARD = _names(
    "native_layer_norm_backward native_group_norm_backward nll_loss_backward nll_loss2d_backward "
    "mse_loss_backward smooth_l1_loss_backward softplus_backward"
)
NARROW_IN_BACKWARD = _names("convolution_backward linear_backward _cudnn_rnn_backward")
# Of another size than what they read.
RESIZES = frozenset(
    ("nll_loss", "nll_loss_nd", *(one for one in WIDE_ON_DEVICES if one.startswith("upsample")))
)
FILLED = _names("zeros ones full zeros_like ones_like full_like new_zeros")
# What they add is kept for backward, and has the format of what they add it to.
ADDS_INTO = _names("index_add index_copy index_put scatter_add scatter_reduce")
STATISTICS = frozenset(("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm"))
MASKED = frozenset(("native_dropout",))
WITH_INDICES = frozenset(("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d"))
SUMMED_WIDE = frozenset(("mm",))
CASTS = frozenset(("_to_copy", "to"))
LARGE = 1 << 12  # bytes: smaller weights are biases and norms, which autocast leaves
ADDS = frozenset(("add", "sub", "add_"))
WHOLE_NUMBERS = _names("randint arange argmax topk sort eq lt gt randperm nonzero bernoulli_ triu")
OF_A_WEIGHT = NARROW | {"convolution_backward", "linear_backward", "mkldnn_convolution_backward_weights"}
