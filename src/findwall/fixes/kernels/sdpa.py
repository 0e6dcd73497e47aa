"""Use scaled_dot_product_attention instead of attention written out as softmax(QKᵀ)V.

What it does:
Written out, attention writes a matrix of queries by keys to memory, reads it for the scale, the
mask, the softmax and the dropout, and once more for the product with V. A fused kernel computes it
in tiles that never leave the chip: traffic falls from the square of the sequence length to its
length.

    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=True)

When it does not help:
Attention is already fused, or there is none. An arbitrary additive mask rules out the flash kernel,
but the memory-efficient one takes it; `flex_attention` (compiled) covers biases and block masks.

Risk:
The order of sums differs, so results differ in the last bits. Attention weights are not returned.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.model_calls import Model, each_model
from findwall.apply.registry import APPLIED, REGISTRY, Call
from findwall.apply.seenops import seen_ops
from findwall.facts.cause_kernels import carriers
from findwall.facts.step_traits import calls_around, has_shapes
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    free_launches,
    gone,
    lines,
    no_use,
    of_class,
    on_cores,
    time_of,
    to_floor,
)
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import I64
from findwall.model.machine import SIXTEEN_BITS
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.model_names import named
from findwall.replay.change import Change
from findwall.replay.curves import curves
from findwall.step.step_facts import StepFacts
from findwall.units import format_calls
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts

# Products in a fused kernel: the scores and their use; backward, four gradients and the scores again.
PRODUCTS = {"forward": 2, "backward": 4}
BACKWARD_AGAIN = 5 / 4
FUSED = ("scaled_dot_product", "flash_attn", "flash_attention")  # in the names of such ops
CALLS = frozenset({"aten::scaled_dot_product_attention"})


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("unfused-attention")
    if spent <= 0:
        return _why_not(facts)
    if (call := _call(facts)) >= 0:
        claim = Claim("sdpa/math-path", {"scores_ms": spent}, parts=[_hindrance(facts, call)])
    else:
        places = lines(*(line_of(facts, one.op_row) for one in carriers(facts, "unfused-attention")))
        claim = Claim("sdpa/replace", {"scores_ms": spent}, places=places[:1])
    return Use(claim, _best(facts), likely=lambda made: _likely(facts))


def _best(facts: Facts) -> Change:
    """One kernel keeps the products of what is written out, and none of the rest."""
    atoms = facts.atoms_of("unfused-attention")
    products = of_class(facts, "matmul")[atoms]
    return (
        gone(facts, atoms[~products])
        + to_floor(facts, atoms[products])
        + free_launches(facts, atoms[products])
    )


def _likely(facts: Facts) -> Change:
    """The same, the fused kernel at the speed that such kernels reach: with a bias it is a slower one, and
    the backward pass multiplies once more than what is written out."""
    atoms = facts.atoms_of("unfused-attention")
    products = of_class(facts, "matmul")[atoms]
    mine = atoms[products]
    rows = facts.kernels.op[facts.atoms.index[mine]]
    backward = (rows >= 0) & facts.links.backward[np.maximum(rows, 0)]
    bias = "bias" if _adds_bias(facts, atoms[~products]) else "plain"
    math = facts.math(int(mine[0])) if len(mine) else None
    narrow = math in SIXTEEN_BITS
    least = (
        np.nan_to_num(facts.atoms.floor[mine])
        if narrow
        else np.nan_to_num(facts.kernels.floor[facts.atoms.index[mine]])
    )
    ns = np.empty(len(mine))
    for way, where, more in (("forward", ~backward, 1.0), ("backward", backward, BACKWARD_AGAIN)):
        # A fused kernel does what two products and a softmax do: its floor is that of both.
        curve = f"attention/{'bf16' if narrow else 'fp32'}/{way}/{bias}"
        count = PRODUCTS[way]
        ns[where] = curves().likely_ns(curve, np.maximum(count * more * least[where], 1.0)) / count
    return gone(facts, atoms[~products]) + to_floor(facts, mine, ns) + free_launches(facts, mine)


def _adds_bias(facts: WorkFacts, atoms: I64) -> bool:
    """Whether something is added to the scores, as a bias or a mask of numbers is."""
    names = {(facts.op_name(int(atom)) or "").rpartition("::")[2].rstrip("_") for atom in atoms}
    return "add" in names


def _call(facts: Facts) -> int:
    """The call of the library's attention that most of the work on scores lies in; -1 if there is none."""
    atoms = facts.atoms_of("unfused-attention")  # longest first
    calls = calls_around(facts, atoms, CALLS)
    inside = calls >= 0
    if time_of(facts, atoms[inside]) <= MAJORITY_SHARE * time_of(facts, atoms):
        return -1
    return int(calls[inside][0])


def _hindrance(facts: StepFacts, call: int) -> Claim:
    """What keeps a call from a fused kernel, as far as its arguments tell, and what to do about it."""
    # Where nothing in the trace tells, torch itself names the reason if only a fused kernel is allowed.
    ask = Claim("sdpa/ask", {"backend": "FLASH_ATTENTION" if on_cores(facts) else "EFFICIENT_ATTENTION"})
    inputs = facts.timeline.inputs_of(call)
    if inputs is None:
        return ask
    given = Arguments(inputs)
    tensors = [tensor for at in range(3) if (tensor := given.tensor(at)) is not None]
    mask, dropout = given.tensor(3), given.number(4)
    if on_cores(facts) and dropout:
        return Claim("sdpa/dropout-on-cores", {"dropout": dropout})
    if not on_cores(facts) and any(tensor.math == "fp64" for tensor in tensors):
        return Claim("sdpa/fp64")
    if any(len(tensor.dims) != 4 for tensor in tensors):
        return Claim("sdpa/dims")
    if any(tensor.strides and tensor.strides[-1] != 1 for tensor in tensors):
        return Claim("sdpa/not-contiguous")
    if mask is not None and len(mask.dims) not in (2, 4):
        return Claim("sdpa/mask-dims", {"dims": len(mask.dims)})
    return Claim("sdpa/mask") if mask is not None else ask


def _why_not(facts: Facts) -> Outcome:
    fused = time_of(facts, np.flatnonzero(of_class(facts, "attention")))
    if fused > 0:
        return no_use("sdpa/already")
    if not has_shapes(facts):
        return cannot_tell("sdpa/no-shapes")
    return no_use("sdpa/none")


def apply(torch: Any, effect: Effect) -> None:
    """Models of Hugging Face have it as a setting; what a job writes out itself needs an edit."""

    def switch(model: Model) -> str:
        eager = [one for one in model.module.modules() if _implementation(one) == "eager"]
        if not eager:
            return "attention that a job writes out needs an edit"
        for one in eager:
            if _implementation(one) != "eager":  # part of one that was switched
                continue
            _set_implementation(one, "sdpa")
            REGISTRY.hold("sdpa", "attention", partial(_set_implementation, one, "eager"), past_end=APPLIED)
        effect.at("call", value="switch" if hasattr(model.module, "set_attn_implementation") else "")
        if model.can_look:
            model.look_at_first_call(_fused_seen(torch, effect))
            return ""
        return "the job compiled its model, so it cannot be seen whether attention is fused"

    each_model(torch, effect, switch)


def _set_implementation(module: Any, name: str) -> None:
    if hasattr(module, "set_attn_implementation"):
        module.set_attn_implementation(name)
    else:
        module.config._attn_implementation = name


def _implementation(module: Any) -> str | None:
    return getattr(getattr(module, "config", None), "_attn_implementation", None)


@contextmanager
def _fused_seen(torch: Any, effect: Effect) -> Iterator[None]:
    fused: list[str] = []
    with seen_ops(torch, lambda name, _: fused.append(name) if _is_fused(name) else None):
        yield
    if fused:
        effect.saw(f"{format_calls(len(fused))} of scaled_dot_product_attention in the first forward pass")


def shows(torch: Any, effect: Effect) -> None:
    """Fused attention in the first call of a model, or in what the job had compiled of it."""

    def look(model: Model) -> str:
        if model.can_look:
            model.look_at_first_call(_fused_seen(torch, effect))
        else:
            _watch_graphs(effect)
        return "no fused attention was seen in the model"

    each_model(torch, effect, look)


def _watch_graphs(effect: Effect) -> None:
    """The compiler is there by now, as the model is made with it: each graph that it makes is looked at."""
    graphs = sys.modules["torch._dynamo.output_graph"].OutputGraph

    def note(_output: Any, graph: Any, *_: Any) -> None:
        if calls := sum(_is_fused(str(node.target)) for node in graph.graph.nodes):
            effect.saw(f"{format_calls(calls)} of scaled_dot_product_attention in a compiled graph")

    def noted(original: Call) -> Call:
        @functools.wraps(original)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):  # a look, no more
                note(*args)
            return original(*args, **kwargs)

        return compiled

    REGISTRY.wrap("sdpa", graphs, "call_user_compiler", noted, past_end=APPLIED)


def _is_fused(name: str) -> bool:
    return any(one in name for one in FUSED)


def patch(editor: Editor) -> None:
    for place in editor.places("call"):
        if not place.value:
            raise NoPatch('Pass `attn_implementation="sdpa"` where the model is made.')
        model = named(editor, place)
        model.then(f'{model.name}.set_attn_implementation("sdpa")')


FIX = Fix(
    ("unfused-attention",),
    "changes-numerics",
    use,
    tried=4,
    apply=apply,
    live=apply,
    shows=shows,
    patch=patch,
)
