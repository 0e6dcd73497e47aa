"""The words of fixes that make other kernels: the compiler's, the library's, tuned and written ones."""

from __future__ import annotations

from findwall.model.claims import Claim, listed
from findwall.report.words import Words, fill, number, per_step, spoken
from findwall.report.words.amounts import at, count_of
from findwall.units import format_share


def _graphs(claim: Claim) -> str:
    sync = claim.names["sync"]
    first = f" Take {sync} out first: a graph cannot hold a sync." if sync else ""
    if claim.figures["sets_up"]:
        first += " Pad the inputs to fixed shapes: a graph takes no others."
    way = "`with torch.cuda.graph(g): out = model(static_in)`, then `g.replay()`"
    if claim.figures["trains"]:
        way = "`torch.cuda.make_graphed_callables(model, sample)`"
    return fill(
        "Use {way}: about {launches:,.0f} launches become one, and the device waits {waits_ms:per_step} for "
        "them today.{first}",
        claim,
        way=way,
        first=first,
    )


def _reduce_overhead(claim: Claim) -> str:
    spent = number(claim, "pointwise_ms")
    chains = f"pointwise kernels take {per_step(spent)}, which it fuses; " if spent else ""
    return fill(
        'Use `torch.compile(model, mode="reduce-overhead")`: {chains}the device waits {waits_ms:per_step} '
        "for launches, which CUDA graphs make one a call.",
        claim,
        chains=chains,
    )


def _compile(claim: Claim) -> str:
    captured = claim.figures["captured"]
    way = (
        "Run `torch.compile(model)` before the capture" if captured else "Use `model = torch.compile(model)`"
    )
    said = f"{way}: it {listed(map(spoken, claim.parts))}."
    if not number(claim, "loss_ms"):
        return said
    return said + fill(
        " {loss_ms:per_step} of that lies behind the last product, as losses do: compile that function too, "
        "if it is not part of the model.",
        claim,
    )


def _compiled_already(claim: Claim) -> str:
    share = number(claim, "generated_share")
    generated = f" ({format_share(share)} of device time in generated kernels)" if share else ""
    return f"the model is already compiled{generated}"


def _block_sparse(claim: Claim) -> str:
    return fill(
        "Write `flex_attention(q, k, v, block_mask=create_block_mask(rule, None, None, L, L))`{where}, "
        "compiled; or give each packed sequence a row and no mask. {left_share:share} of {side} × {side} "
        "blocks ({through_share:share} of positions) pass the mask; all take {spent_ms:per_step}.",
        claim,
        where=at(claim),
    )


def _custom(claim: Claim) -> str:
    cores = ", on {threads} of {cores} cores." if claim.figures["cores"] else "."
    return fill(
        "Write or find a faster kernel for {kernel}: it takes {spent_ms:ms} per step and reaches "
        "{reached_share:share} of what the hardware can do" + cores,
        claim,
    )


def _bucket(claim: Claim) -> str:
    shapes = int(number(claim, "shapes"))
    return fill(
        "Pad or bucket lengths to a few fixed shapes: setting up {op}{shapes_new} takes "
        "{set_up_ms:per_step}, and a shape that comes back needs no new set-up.",
        claim,
        shapes_new=f" for {count_of(shapes, 'new shape')}" if shapes else "",
    )


def _dynamic(claim: Claim) -> str:
    again, functions = (int(number(claim, name)) for name in ("compilations", "functions"))
    count = f" ({again} compilations of {count_of(functions, 'function')} in the trace)" if again else ""
    return fill(
        "Use `torch.compile(model, dynamic=True)` or `torch._dynamo.mark_dynamic(x, dim)`, or pad lengths to "
        "a few sizes: compiling takes {compiling_ms:per_step}{count}. `TORCH_LOGS=recompiles` names the "
        "guard.",
        claim,
        count=count,
    )


def _chains(claim: Claim) -> str:
    return " and ".join(map(spoken, claim.parts))


def _instead_of_small_ops(claim: Claim) -> str:
    return fill(
        "Call {chains} instead of many small ops: the host issues about {issued:,.0f} {pieces} per step.",
        claim,
        chains=_chains(claim),
    )


def _instead_of_writing_out(claim: Claim) -> str:
    return fill(
        "Call {chains} instead of writing it out{where}: pointwise {pieces} take {pointwise_ms:per_step}.",
        claim,
        chains=_chains(claim),
        where=at(claim),
    )


def _counted_pairs(claim: Claim) -> str:
    """Values that are compared with all others."""
    weights = " and take a cumsum of the sorted weights there" if claim.figures["weighted"] else ""
    return fill(
        "Sort one side and look the other up with `torch.searchsorted`{weights}, instead of comparing "
        "{values:,} values with {others:,} each{where}: writing all pairs down and adding them up takes "
        "{spent_ms:per_step}.",
        claim,
        weights=weights,
        where=at(claim),
    )


def _routine(instead: str) -> Words:
    """A cheaper routine of linear algebra."""
    return lambda claim: fill(
        "Take a cheaper routine than {op}{where}: {instead}. It is called {calls:,.0f} times per step, and "
        "takes {spent_ms:per_step} on the device, waiting left out.",
        claim,
        where=at(claim),
        instead=instead,
    )


def _replace_attention(claim: Claim) -> str:
    return fill(
        "Replace softmax(q @ kᵀ) @ v{where} with `F.scaled_dot_product_attention(q, k, v, …)` (a bias as "
        "attn_mask, or flex_attention; nn.MultiheadAttention: need_weights=False): the matrix of scores "
        "takes {scores_ms:per_step}.",
        claim,
        where=at(claim),
    )


def _experts(claim: Claim) -> str:
    return fill(
        "Sort the tokens by expert once and multiply them in groups{where} (`torch._grouped_mm`, or `bmm` on "
        "padded pieces): {loops:,.0f} loops per step go over {rounds:,.0f} experts one by one, each waits "
        "for {op}, and they issue {issued:,.0f} {pieces}.",
        claim,
        where=at(claim),
    )


WORDS: dict[str, Words] = {
    "autotune-kernels/near-ceiling": "the matmuls and convolutions run near the ceiling",
    "autotune-kernels/no-others": "no compiler has other kernels for what is slow",
    "autotune-kernels/convolutions": (
        "what is slow are convolutions, whose algorithms cudnn.benchmark chooses"
    ),
    "autotune-kernels/time-them": (
        "Let torch time the kernels it has for these shapes and keep the fastest (torch.compile with "
        '`mode="max-autotune"`): {slow_ms:per_step} runs well under the ceiling.'
    ),
    "group-experts/sorted": _experts,
    "group-experts/none": "no loop fetches tokens and multiplies them expert by expert",
    "group-experts/few": "the loop over experts launches little of the step",
    "builtin-ops/recurrent": "`nn.GRU` or `nn.LSTM`",
    "builtin-ops/mish": "`F.mish(x)`",
    "builtin-ops/gelu-tanh": "`F.gelu(x, approximate='tanh')`",
    "builtin-ops/gelu": "`F.gelu(x)`",
    "builtin-ops/silu": "`F.silu(x)` for x * sigmoid(x), if that is what it is,",
    "builtin-ops/rms-norm": "`F.rms_norm`",
    "builtin-ops/layer-norm": "`F.layer_norm`",
    "builtin-ops/cells": (
        "Call `{layer}` over all time steps instead of its cell {calls:,.0f} times per step[[ "
        "({places[0]})]], unless a time step's input hangs on the output before it: the host issues about "
        "{issued:,.0f} {pieces} per step."
    ),
    "builtin-ops/written-cell": (
        "Use `{layer}` for the recurrent cell written out[[ at {places[0]}]], with its weights put together: "
        "it multiplies the inputs of all time steps at once, where {rounds:,.0f} rounds per step bring about "
        "{launched:,.0f} {pieces}."
    ),
    "builtin-ops/cross-entropy": (
        "Call `F.cross_entropy` on the logits[[ at {places[0]}]], with `label_smoothing=` or `ignore_index=` "
        "where it needs that: {passes:,.0f} passes over {rows:,} × {words:,} numbers beside the softmax take "
        "{spent_ms:per_step}."
    ),
    "builtin-ops/pairs": _counted_pairs,
    "builtin-ops/convolution": (
        "Use `F.conv2d` (or `F.conv1d`) instead of `F.unfold` and a product[[ at {places[0]}]]: writing each "
        "number down for the {window} places of a window, and adding its gradients up, takes "
        "{spent_ms:per_step}."
    ),
    "builtin-ops/called-already": "most small {pieces} already belong to one call of {op}",
    "builtin-ops/none": "no chain of ops here is one that a library op covers",
    "builtin-ops/instead-of-small-ops": _instead_of_small_ops,
    "builtin-ops/instead-of-writing-out": _instead_of_writing_out,
    "linalg-route/none": "no costly routine of linear algebra is called",
    "linalg-route/svd": _routine(
        "where its columns are few, `torch.linalg.eigh(a.mT @ a)`; `svdvals` for singular values alone"
    ),
    "linalg-route/pinv": _routine("`torch.linalg.solve` or `lstsq` on the right side"),
    "linalg-route/inv": _routine(
        "`torch.linalg.solve(a, b)` for `inv(a) @ b`, or `cholesky_solve` where it is "
        "symmetric and positive definite; `inv_ex` does not wait"
    ),
    "linalg-route/eig": _routine("`torch.linalg.eigh` where it is symmetric"),
    "linalg-route/lstsq": _routine(
        "the normal equations: `cholesky_solve(a.mT @ b, cholesky_ex(a.mT @ a)[0])`"
    ),
    "compile-blocks/not-shown": (
        "a trace does not show what a model repeats; `findwall try` makes it where torch-compile fails, or "
        "by itself with --fixes compile-blocks"
    ),
    "cuda-graphs/never-waits": "the device never waits for the host to launch",
    "cuda-graphs/compiled": "the model is compiled: reduce-overhead records its graphs",
    "cuda-graphs/record": _graphs,
    "cudnn-benchmark/none": "there are no convolutions",
    "cudnn-benchmark/near-ceiling": "the convolutions run near the ceiling",
    "cudnn-benchmark/shapes-change": (
        "the convolutions' shapes change from step to step: each new one would be timed again"
    ),
    "block-sparse-attention/no-attention": "nothing calls `F.scaled_dot_product_attention` in this step",
    "block-sparse-attention/no-shapes": (
        "the trace has no shapes (record_shapes=True) by which masks of attention could be told"
    ),
    "block-sparse-attention/no-mask": "no attention of this step has a mask of queries by keys",
    "block-sparse-attention/not-seen": (
        "nobody saw how much the masks of attention let through (`findwall run` looks at them)"
    ),
    "block-sparse-attention/mostly-needed": (
        "no mask of attention that was looked at leaves out most of what takes time; a plain causal one is a "
        "flag, `is_causal=True`"
    ),
    "block-sparse-attention/found": _block_sparse,
    "cudnn-benchmark/no-shapes": "whether the convolutions' shapes change is not known: record_shapes=True",
    "cudnn-benchmark/switch-on": (
        "Set `torch.backends.cudnn.benchmark = True` before the first step: convolutions of fixed shapes run "
        "well under the ceiling for {slow_ms:per_step}, and other algorithms may be faster."
    ),
    "custom-kernels/no-floor": "no kernel's floor is known: {parts[0]}",
    "custom-kernels/near-floor": "no single kernel is far enough from its floor",
    "custom-kernels/write": _custom,
    "fewer-graph-breaks/not-compiled": "nothing is compiled here, so no graph can break",
    "fewer-graph-breaks/none": "no time is lost between compiled pieces",
    "fewer-graph-breaks/fullgraph": (
        "Use `torch.compile(model, fullgraph=True)` to stop at the first break (`TORCH_LOGS=graph_breaks` "
        "lists them all): {lost_ms:per_step} is lost between compiled pieces."
    ),
    "fused-loss/none": "no loss over logits takes time in this step",
    "fused-loss/little": "the loss over {words:,} words takes only {spent_ms:per_step}",
    "fused-loss/fuse": (
        "Put cast and cross-entropy under torch.compile, or use a fused linear-cross-entropy: {passes:,.0f} "
        "passes over {rows:,} × {words:,} logits take {spent_ms:per_step}."
    ),
    "reduce-overhead/as-default": (
        'Use `torch.compile(model, mode="reduce-overhead")`: as good as the default mode while the device '
        "never waits for launches, as today."
    ),
    "reduce-overhead/record": _reduce_overhead,
    "sdpa/math-path": (
        "`F.scaled_dot_product_attention` takes its math path, which spends {scores_ms:per_step} on the "
        "matrix of scores: {parts[0]}."
    ),
    "sdpa/replace": _replace_attention,
    "sdpa/dropout-on-cores": (
        "a CPU has no fused kernel with dropout (dropout_p={dropout:g}); if training allows it, set "
        "`layer.self_attn.dropout = 0.0`"
    ),
    "sdpa/fp64": "no fused kernel takes fp64; where 16 digits are not needed, call it on fp32 or 16 bits",
    "sdpa/dims": "fused kernels take 4 dims; make it [batch, heads, length, width] with `unsqueeze(0)`",
    "sdpa/not-contiguous": "fused kernels want the last dim contiguous; call `.contiguous()` on q, k and v",
    "sdpa/mask-dims": "fused kernels take masks of 2 or 4 dims, not of {dims}; `unsqueeze` it",
    "sdpa/mask": (
        "its mask may be why, if it needs a gradient; is_causal=True needs no mask, flex_attention takes "
        "biases"
    ),
    "sdpa/ask": (
        "run it once in `with sdpa_kernel(SDPBackend.{backend}):`, which warns about what rules it out"
    ),
    "sdpa/already": "attention already runs in fused kernels",
    "sdpa/no-shapes": "the trace has no shapes (record_shapes=True) by which attention could be told",
    "sdpa/none": "no attention is written out in this step",
    "static-shapes/none": "the step compiles nothing and sets nothing up",
    "static-shapes/bucket": _bucket,
    "static-shapes/dynamic": _dynamic,
    "torch-compile/already": _compiled_already,
    "torch-compile/unknown": "what fusing would save is not known: {parts[0]}",
    "torch-compile/nothing": "there is nothing to fuse, and the device never waits for launches",
    "torch-compile/does-unfused-pointwise": "fuses pointwise chains into one kernel each",
    "torch-compile/does-named-pointwise": "fuses pointwise chains into one kernel each (mostly {ops})",
    "torch-compile/does-launch-bound": "issues fewer launches",
    "torch-compile/does-unfused-attention": "recognises attention",
    "torch-compile/does-dtype-casts": "folds casts into their neighbours",
    "torch-compile/does-layout-copies": "folds layout copies into what reads them",
    "torch-compile/does-misaligned-shapes": "pads odd matmuls",
    "torch-compile/does-gather-scatter": "fetches rows and adds them up in kernels of its own",
    "torch-compile/compile": _compile,
    "torch-compile/graph-issues": "a CUDA graph already issues the kernels",
    "torch-compile/small-kernels": (
        "Run `torch.compile(model)` before the capture: small kernels take {small_share:share} of the step."
    ),
    "torch-compile/on-cores": (
        "Use `torch.compile(model)` for fewer and larger ops: {waits_ms:per_step} passes between them today."
    ),
    "torch-compile/launches": (
        "Use `model = torch.compile(model)`: the device waits {waits_ms:per_step} for launches, and "
        "generated code issues fewer."
    ),
}
