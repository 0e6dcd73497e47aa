"""Step all parameters in one kernel: `fused=True`.

What it does:
An optimizer written as one op after the other reads and writes parameters, gradients and states
many times. The fused one reads and writes each once, in a few launches for all parameters together.

    torch.optim.AdamW(model.parameters(), lr=…, fused=True)

When it does not help:
The optimizer is already fused, or its step is short beside forward and backward (large batches, few
parameters). `foreach=True` saves launches but not traffic and can even be slower: foreach-optimizer.

Risk:
Rounding differs in the last bits. Only Adam, AdamW, SGD and Adagrad have it in torch; others need a
library's kernel or a compiled step.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.job_lines import passed
from findwall.apply.registry import APPLIED, REGISTRY, STEP_POST_HOOK
from findwall.facts.figures import SECOND_NAMED_SHARE
from findwall.facts.step_traits import HAVE_FUSED, updates_itself
from findwall.facts.waits import optimizer_launches
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    free_launches,
    matching,
    no_use,
    of_class,
    rows_of,
    step_ms,
    time_of,
    to_floor,
)
from findwall.fixes.optimizer.live_steps import step_live
from findwall.fixes.optimizer.optimizer_flags import KeptWay
from findwall.fixes.optimizer.optimizer_patch import set_way
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.patches.editor import Editor
from findwall.replay.change import Change, Launch, Ready
from findwall.replay.curves import curves
from findwall.step.call_names import optimizers
from findwall.work.work_facts import WorkFacts

MOVES = ("unfused-optimizer", "launch-bound")
_LISTS = re.compile("foreach")
_FUSED_NAME = re.compile("fused", re.IGNORECASE)


def use(facts: Facts) -> Outcome:
    names = optimizers(facts.timeline)
    spent, fused = facts.spent_ms("unfused-optimizer"), _fused_ms(facts)
    if fused > spent:
        return no_use("fused-optimizer/already", fused_ms=fused)
    if spent <= 0:
        known = bool(names) or time_of(facts, np.flatnonzero(of_class(facts, "optimizer"))) > 0
        return cannot_tell("fused-optimizer/untold") if known else no_use("optimizer/none")
    waited = optimizer_launches(facts)
    moves = MOVES if waited > MENTION_SHARE * step_ms(facts) else MOVES[:1]
    return Use(
        _way(names, spent, waited, updates_itself(facts)),
        _best(facts),
        moves,
        likely=lambda made: _likely(facts),
        # An optimizer of one's own has no such kernel until somebody writes one.
        after_others=bool(names) and not set(names) & set(HAVE_FUSED),
    )


def _way(names: list[str], spent: float, waited: float, own: bool) -> Claim:
    figures = {"kernels_ms": spent, "waits_ms": waited if waited > SECOND_NAMED_SHARE * spent else None}
    if own:
        return Claim("fused-optimizer/own-update", figures)
    able = [name for name in names if name in HAVE_FUSED]
    if able or not names:
        return Claim("fused-optimizer/switch-on", figures, {"optimizer": able[0] if able else "AdamW"})
    parts = [Claim("optimizer/name", names={"optimizer": name}) for name in names]
    return Claim("fused-optimizer/has-none", figures, parts=parts)


def _fused_ms(facts: Facts) -> float:
    atoms = np.flatnonzero(of_class(facts, "optimizer"))
    return time_of(facts, atoms[matching(facts, rows_of(facts, atoms), _FUSED_NAME)])


def _best(facts: WorkFacts) -> Change:
    """The least traffic, in launches that cost nothing, one right after the other."""
    atoms = np.flatnonzero(of_class(facts, "optimizer"))
    return (
        to_floor(facts, atoms)
        + free_launches(facts, atoms)
        + Change((Ready(rows_of(facts, atoms), turn=0.0),))
    )


def _likely(facts: WorkFacts) -> Change:
    """The least traffic at the speed that a fused step reaches, and as much of the host's time as it takes of
    what the separate kernels take: in lists (foreach) or one by one."""
    atoms = np.flatnonzero(of_class(facts, "optimizer"))
    least = facts.atoms.floor[atoms]
    whole = np.array([max(float(np.nansum(least)) / facts.steps.count, 1.0)])  # one pass over all of them
    slower = float((curves().likely_ns("optimizer/fused", whole) / whole)[0])
    lists = (
        matching(facts, np.maximum(facts.kernels.op[facts.atoms.index[atoms]], 0), _LISTS).mean()
        > MAJORITY_SHARE
    )
    share = curves().host["fused of foreach" if lists else "fused of for-loop"]
    rows = np.unique(rows_of(facts, atoms))
    return to_floor(facts, atoms, least * slower) + Change((Launch(rows, share), Ready(rows, turn=0.0)))


def apply(torch: Any, effect: Effect) -> None:
    """Optimizers that have a fused kernel are made with it, unless the job chose a way itself."""
    effect.missed("no optimizer of torch's own that has a fused kernel was made")
    way = KeptWay(effect, "fused", foreach=None)
    for name in HAVE_FUSED:
        kind = getattr(torch.optim, name, None)
        if kind is not None and "fused" in inspect.signature(kind.__init__).parameters:
            fused = functools.partial(_fused, effect, way)
            REGISTRY.wrap("fused-optimizer", kind, "__init__", fused, past_end=APPLIED)


def _fused(effect: Effect, way: KeptWay, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def make(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        chosen = next((one for one in ("fused", "capturable", "differentiable") if kwargs.get(one)), None)
        if chosen is not None:
            original(optimizer, *args, **kwargs)
            effect.missed(f"the job makes {type(optimizer).__name__} with {chosen}=True itself")
            return
        try:
            original(optimizer, *args, **{**kwargs, "fused": True, "foreach": None})
        except RuntimeError as error:  # parameters of a type or on a device that it does not take
            effect.cannot(str(error).splitlines()[0])
            original(optimizer, *args, **kwargs)
            return
        if all(group.get("fused") for group in optimizer.param_groups):
            way.keep(optimizer)
            takes, given = passed(original, args, kwargs)
            effect.at("optimizer", optimizer, takes=takes, given=given, value=type(optimizer).__name__)

    return make


def live(torch: Any, effect: Effect) -> None:
    step_live(torch, effect, "fused", _why_not_fused)


def _why_not_fused(optimizer: Any) -> str:
    for chosen in ("fused", "capturable", "differentiable"):
        if optimizer.defaults.get(chosen):
            return f"has {chosen}=True already"
    able = type(optimizer).__name__ in HAVE_FUSED and "fused" in optimizer.defaults
    return "" if able else "has no fused=True"


def shows(torch: Any, effect: Effect) -> None:
    """What optimizers step with at last."""
    stepped: dict[str, bool] = {}

    def note(optimizer: Any, *_: Any) -> None:
        name = type(optimizer).__name__
        stepped[name] = "fused" in name.lower() or all(one.get("fused") for one in optimizer.param_groups)

    optimizers = importlib.import_module("torch.optim.optimizer")
    hook = optimizers.register_optimizer_step_post_hook(effect.safely(note))
    REGISTRY.hold("fused-optimizer", STEP_POST_HOOK, hook.remove, past_end=APPLIED)

    def told() -> str:
        fused = [name for name, is_fused in stepped.items() if is_fused]
        effect.missed("no optimizer stepped with fused=True")
        return f"fused=True in {fused[0]}" if fused else ""

    effect.at_end(told)


def patch(editor: Editor) -> None:
    for place in editor.places("optimizer"):
        trainer = {"optim": '"adamw_torch_fused"'} if place.value == "AdamW" else {}
        also = {"foreach": "None"} if "foreach" in place.given else {}
        set_way(editor, place, "fused", {"transformers": trainer}, **also)


FIX = Fix(MOVES, "changes-numerics", use, tried=5, apply=apply, live=live, shows=shows, patch=patch)
