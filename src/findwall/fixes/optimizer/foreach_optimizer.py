"""Update all parameters with one op on a list of them: `foreach=True`.

What it does:
An optimizer that walks from parameter to parameter launches every op of its update once for each of them:
thousands of small kernels per step. With lists (`torch._foreach_mul_` and its kin) each op is launched a few
times for all parameters together:

    torch.optim.NAdam(model.parameters(), lr=…, foreach=True)

An optimizer of one's own is written the same way: gather parameters, gradients and states in lists, and call
`torch._foreach_` ops on them.

When it does not help:
The optimizer has `fused=True`, which goes through memory once instead of once an op: use that. Parameters are
few and large: then traffic counts, which lists do not save, and their kernels can be slower (on an H200,
AdamW over eight matrices of 134 MB took 1.18 times as long).

Risk:
Results differ in the last bits at most. Intermediate values of all parameters exist at once: more memory, at
its peak about the size of the parameters.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.new_objects import after_made
from findwall.facts.best_changes import in_lists, lists_at_best, passes_ns
from findwall.facts.step_traits import HAVE_FUSED
from findwall.facts.waits import optimizer_launches
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    NoUse,
    Outcome,
    Use,
    cannot_tell,
    matching,
    no_use,
    of_class,
    rows_of,
    step_ms,
)
from findwall.fixes.optimizer.live_steps import step_live
from findwall.fixes.optimizer.optimizer_flags import KeptWay
from findwall.fixes.optimizer.optimizer_patch import set_way
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.intervals import I64
from findwall.patches.editor import Editor
from findwall.replay.change import Change
from findwall.step.call_names import optimizers
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

# Of torch 2.11, those that take foreach=True and no fused=True.
HAVE_FOREACH = ("ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
_LISTS = re.compile(r"foreach|multi_tensor|fused", re.IGNORECASE)


def use(facts: Facts) -> Outcome:
    names = optimizers(facts.timeline)
    atoms = np.flatnonzero(of_class(facts, "optimizer"))
    if len(atoms) == 0:
        return no_use("optimizer/none")
    if able := [name for name in names if name in HAVE_FUSED]:
        return NoUse(Claim("foreach-optimizer/has-fused", parts=[optimizer(name) for name in able]))
    if not names:
        return cannot_tell("foreach-optimizer/unnamed")
    if _takes_lists(facts, atoms):
        return no_use("foreach-optimizer/already")
    launches = len(atoms) / facts.steps.count
    waited = optimizer_launches(facts)
    passes = passes_ns(facts, atoms)
    started = ms(float(np.nansum(np.maximum(facts.atoms.own[atoms] - passes, 0.0)))) / facts.steps.count
    if waited + started <= MENTION_SHARE * step_ms(facts):
        return no_use("foreach-optimizer/hidden")
    has = [name for name in names if name in HAVE_FOREACH]
    figures = {"kernels": launches, "waits_ms": waited, "started_ms": started}
    return Use(
        Claim(
            f"foreach-optimizer/{'switch-on' if has else 'write'}",
            figures,
            parts=[optimizer(name) for name in has[:1] or names],
        ),
        lists_at_best(facts, atoms),
        likely=lambda made: Change() if "fused-optimizer" in made else in_lists(facts, atoms, bool(has)),
    )


def optimizer(name: str) -> Claim:
    return Claim("optimizer/name", names={"optimizer": name})


def _takes_lists(facts: WorkFacts, atoms: I64) -> bool:
    """Whether most of the optimizer's kernels take many tensors at once."""
    ops = facts.kernels.op[facts.atoms.index[atoms]]
    named = (ops >= 0) & matching(facts, np.maximum(ops, 0), _LISTS)
    named |= matching(facts, rows_of(facts, atoms), _LISTS)
    return bool(named.mean() > MAJORITY_SHARE)


def apply(torch: Any, effect: Effect) -> None:
    """Optimizers of torch that would walk from parameter to parameter."""
    way = KeptWay(effect, "foreach")
    take = effect.safely(lambda optimizer: _take_lists(torch, optimizer, effect, way))
    after_made("foreach-optimizer", torch.optim.Optimizer, take)


def _take_lists(torch: Any, optimizer: Any, effect: Effect, way: KeptWay) -> None:
    name, groups = type(optimizer).__name__, optimizer.param_groups
    if why := _why_not(torch, optimizer):
        effect.missed(f"{name} {why}")
        return
    for one in (optimizer.defaults, *groups):  # what is added later is made from the defaults
        one["foreach"] = True
    if all(group["foreach"] for group in groups):
        way.keep(optimizer)
        effect.at("optimizer", optimizer, value=name)


def _why_not(torch: Any, optimizer: Any) -> str:
    defaults, groups = optimizer.defaults, optimizer.param_groups
    if "foreach" not in defaults or not type(optimizer).step.__module__.startswith("torch.optim."):
        return "has no foreach=True"
    if any(group.get("fused") for group in groups):
        return "has fused=True, which saves more"
    if any(group.get("differentiable") for group in groups):
        return "is differentiable, which lists are not"
    if any(isinstance(group.get("lr"), torch.Tensor) for group in groups):
        return "has a learning rate in a tensor, which lists do not take"
    # Where the job did not choose, torch does: lists on the GPU, one by one elsewhere.
    by_torch = sys.modules[
        "torch.optim.optimizer"
    ]._default_to_fused_or_foreach  # no attribute of torch.optim
    if all(
        by_torch(group["params"], False)[1] if group["foreach"] is None else group["foreach"]
        for group in groups
    ):
        return "updates parameters in lists already"
    return ""


def live(torch: Any, effect: Effect) -> None:
    step_live(torch, effect, "foreach", lambda optimizer: _why_not(torch, optimizer))


def patch(editor: Editor) -> None:
    for place in editor.places("optimizer"):
        set_way(editor, place, "foreach")


FIX = Fix(
    ("launch-bound", "unfused-optimizer"),
    "changes-numerics",
    use,
    apply=apply,
    live=live,
    patch=patch,
    plainer=("fused-optimizer",),
)
