"""What autocast makes of an op's result, by the op's name, and what else a name says of numbers."""

from __future__ import annotations

# As torch's own lists of autocast name them.
NARROW = frozenset(
    (
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "_convolution",
        "addmm",
        "addmv",
        "addr",
        "matmul",
        "einsum",
        "mm",
        "mv",
        "linear",
        "addbmm",
        "baddbmm",
        "bmm",
        "chain_matmul",
        "linalg_multi_dot",
        "prelu",
        "lstm",
        "gru",
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
        "scaled_dot_product_attention",
    )
)
WIDE = frozenset(
    (
        "binary_cross_entropy_with_logits",
        "mse_loss",
        "nll_loss",
        "nll_loss_nd",
        "cross_entropy_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "kl_div",
        "prod",
        "cdist",
        "grid_sampler",
    )
)
WIDE_ON_DEVICES = frozenset(
    (
        "exp",
        "log",
        "pow",
        "rsqrt",
        "reciprocal",
        "softplus",
        "layer_norm",
        "native_layer_norm",
        "rms_norm",
        "group_norm",
        "softmax",
        "log_softmax",
        "cumsum",
        "cumprod",
        "norm",
        "sum",
        "logsumexp",
        "upsample_nearest2d",
        "upsample_bilinear2d",
        "dist",
    )
)
KEEPS_ITS_RESULT = frozenset(
    ("softmax", "exp", "sigmoid", "tanh", "relu", "threshold")
)  # for its own backward
SUMMED_WIDE = frozenset(("mm",))
CASTS = frozenset(("_to_copy", "to"))
LARGE = 1 << 12  # bytes: smaller weights are biases and norms, which autocast leaves
ADDS = frozenset(("add", "sub", "add_"))
WHOLE_NUMBERS = frozenset(
    (
        "randint",
        "arange",
        "argmax",
        "topk",
        "sort",
        "eq",
        "lt",
        "gt",
        "randperm",
        "nonzero",
        "bernoulli_",
        "triu",
    )
)
OF_A_WEIGHT = NARROW | {"convolution_backward", "linear_backward", "mkldnn_convolution_backward_weights"}
