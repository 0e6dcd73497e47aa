"""What names give away, as tables: the class of a kernel, the class of an op, the pipe and the format.

Names that a compiler or a multi-tensor launcher put together are read word by word in `classes.py` instead.
"""

from __future__ import annotations

from findwall.step.kernel_names.matrix_names import ATTENTION, CONVOLUTIONS, PRODUCTS, RECURRENCES
from findwall.step.kernel_names.movement_names import (
    BOOKKEEPING,
    COLLECTIVES,
    COPIES,
    EMBEDDINGS,
    GATHERS,
    SELECTIONS,
    SORTS,
)
from findwall.step.kernel_names.name_table import (
    B200_VLLM,
    H200,
    MI300X_SGLANG,
    RECSYS,
    UNSEEN,
    V100_DLRM,
    NameRow,
    NameTable,
)
from findwall.step.kernel_names.pipe_names import FORMATS, TENSOR_CORES
from findwall.step.kernel_names.vector_names import (
    ELEMENTWISE,
    LAUNCHERS,
    NORMS,
    OPTIMIZERS,
    REDUCTIONS,
    ROTARY,
    SOFTMAX,
)

__all__ = ["COLLECTIVE_KERNELS", "FORMATS", "KERNELS", "OPS", "RECURRENT_KERNELS", "TENSOR_CORES"]

# What an op's name says about the kernels it launched, for kernels whose own name says nothing.
OPS: NameTable[str] = NameTable(
    NameRow(r"c10d::|record_param_comms", "collective", "c10d::allreduce_", f"c10d: {RECSYS}, {V100_DLRM}"),
    NameRow(
        r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|nccl:",
        "collective",
        "vllm::all_reduce",
        f"{B200_VLLM}; torch's ranges around NCCL",
    ),
    NameRow(r"attention|flash_attn|sdpa", "attention", "aten::_flash_attention_forward", H200),
    NameRow(r"softmax", "softmax", "aten::_softmax", H200),
    # Not `aten::normal_`, which draws numbers.
    NameRow(r"norm(?!al)", "norm", "aten::native_layer_norm", f"{H200}; {MI300X_SGLANG}"),
    NameRow(r"convolution|conv\dd|conv_", "conv", "aten::cudnn_convolution", H200),
    NameRow(
        r"(?:^|[:_])(?:add)?b?(?:add)?(?:mm|mv|matmul|linear|bilinear|dot|einsum)(?:$|_)|_int_mm",
        "matmul",
        "aten::addmm",
        H200,
    ),
    NameRow(r"moe|fused_experts", "matmul", "vllm::moe_forward", B200_VLLM),
    NameRow(r"(?:cudnn|miopen|mkldnn)_rnn|::lstm|::gru", "matmul", "aten::_cudnn_rnn", "torch" + UNSEEN),
    NameRow(r"_fused_(?:adam|sgd|adagrad)|foreach|optimizer", "optimizer", "aten::_fused_adamw_", H200),
    NameRow(
        r"embedding|index|gather|scatter|take|lookup", "gather", "aten::index_select", f"{H200}; {RECSYS}"
    ),
    NameRow(r"copy|clone|contiguous|cat$|stack|pad|roll|flip|repeat", "copy", "aten::_to_copy", H200),
    NameRow(
        r"sum|mean|reduce|loss|max_pool|avg_pool|argmax|amax|amin|std|var", "reduce", "aten::mse_loss", H200
    ),
    NameRow(
        r"sort|topk|unique|nonzero|multinomial|median|kthvalue|::mode$|bucketize|histc|histogram|bincount",
        "other",
        "aten::topk",
        H200,
    ),
    NameRow(
        r"add|mul|div|sub|gelu|relu|silu|tanh|sigmoid|exp|pow|where|dropout|fill|zero|clamp|sqrt|neg|uniform|"
        r"normal|bernoulli|random",
        "pointwise",
        "aten::masked_fill_",
        H200,
    ),
)
# The rank of the groups. A layout kernel inside a library names the library too, and an attention kernel is
# full of the word gemm: the narrower meaning comes first.
KERNELS: NameTable[str] = NameTable(
    *LAUNCHERS,
    *RECURRENCES,
    *COLLECTIVES,
    *COPIES,
    *BOOKKEEPING,
    *ROTARY,
    *EMBEDDINGS,
    *SOFTMAX,
    *OPTIMIZERS,
    *ATTENTION,
    *NORMS,
    *CONVOLUTIONS,
    *PRODUCTS,
    *SELECTIONS,
    *GATHERS,
    *SORTS,
    *REDUCTIONS,
    *ELEMENTWISE,
)
# What a kernel's name alone says of communication, whatever else it says.
COLLECTIVE_KERNELS: NameTable[str] = NameTable(*COLLECTIVES)
RECURRENT_KERNELS: NameTable[str] = NameTable(*RECURRENCES)
