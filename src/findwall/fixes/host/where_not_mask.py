"""Mask numbers out with `torch.where` instead of picking them with `x[mask]`.

What it does:
How many numbers `x[mask]` picks is known to the device alone: the host waits for it, every time. Its backward
sorts the places. Where what is picked is only summed or averaged, zeros in the place of the others do:

    torch.where(mask, x, 0).sum() / mask.sum()          # instead of x[mask].mean()
    y = torch.where(mask, f(x), y)                      # instead of y[mask] = f(x[mask])

When it does not help:
Few are picked, and much is done with them: then picking saves more than the wait costs. What is picked goes
into products, or its order matters.

Risk:
Where x is infinite or NaN outside of the mask, `torch.where` leaves that out as well; `x * mask` would not.
Its gradient is zero there: mask what a function cannot take before the function, too.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from findwall.facts.called_atoms import Passes, called_by, end_of_step, of_heads
from findwall.facts.likely_times import in_few_kernels, pass_ns
from findwall.facts.user_lines import line_of
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.facts.waits import shared_idle
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    as_on_cores,
    gone,
    lines,
    no_use,
    rows_of,
    step_ms,
    time_of,
)
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MATRIX_CLASSES, MENTION_SHARE
from findwall.model.intervals import I64
from findwall.replay.change import Change, NoWait
from findwall.step.call_names import in_window, sync_rows
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts
from findwall.units import ms
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts

PICKS, ASKS = "aten::index", "aten::nonzero"
REDUCES = re.compile(r"^aten::(sum|mean|nansum|linalg_vector_norm|mse_loss|l1_loss)$")
PUTS = re.compile(r"^aten::_?index_put(_impl)?_$")
ORDERS = re.compile(r"sort|topk|cum|cat|stack|unique|index")  # numbers that are picked lie next to others
NUMBER_BYTES, MASK_BYTES = 2, 1  # how often a number is read and written; of the mask a byte
MOVES = ("host-sync", "gather-scatter", "slow-kernels", "launch-bound")


def plain(torch: Any, x: Any, mask: Any) -> Any:
    """As it is written today."""
    return x[mask].mean()


def cheaper(torch: Any, x: Any, mask: Any) -> Any:
    """The same, and nobody asks how many there are."""
    kept = torch.where(mask, x, torch.zeros_like(x)).sum()
    return kept / (mask.sum() * (x.numel() // mask.numel()))


class _Picked(msgspec.Struct, frozen=True):
    head: int
    given: Tensor
    forward: I64  # atoms
    backward: I64
    put: bool = False  # it is put back into its places, and not summed


def use(facts: Facts) -> Outcome:
    heads, events = in_window(facts, heads_of(facts)), facts.timeline.events
    name = [at for at, name in enumerate(facts.timeline.names) if name == PICKS]
    seen = [int(at) for at in np.flatnonzero(np.isin(events.name[heads], name))]
    seen = [at for at in seen if _mask(facts, int(heads[at])) is not None]
    if not seen:
        return no_use("where-not-mask/none")
    if waiting_rounds(facts) is not None:  # what a loop asks for in every round is another fix's
        return no_use("where-not-mask/needed")
    of = head_of(facts, heads)
    by = of_heads(facts, heads)
    found = [one for at in seen if (one := _picked(facts, heads, of, by, at)) is not None]
    if not found:
        return no_use("where-not-mask/needed")
    waits = sync_rows(facts)
    mine = np.array([one.head for one in found], np.int64)
    is_mine = np.isin(of[waits], mine)
    waited = ms(float(shared_idle(facts, "host-sync", waits)[is_mine].sum()))
    atoms = np.concatenate([part for one in found for part in (one.forward, one.backward)])
    spent = time_of(facts, atoms)
    if waited + spent <= MENTION_SHARE * step_ms(facts):
        return no_use("where-not-mask/little")
    calm = Change((NoWait(calls=waits[is_mine]),))
    counted: Figures = {"times": len(found) / facts.steps.count, "waits_ms": waited, "spent_ms": spent}
    figures = {**counted, **as_on_cores(facts)}
    said = "where-not-mask/put-back" if found[0].put else "where-not-mask/zeros"
    return Use(
        Claim(said, figures, places=lines(line_of(facts, found[0].head))),
        gone(facts, atoms) + calm,
        MOVES[:1] if waited > spent else MOVES,
        likely=lambda made: _likely(facts, found) + calm,
        condition="" if found[0].put else "picked-then-summed",
    )


def _mask(facts: StepFacts, row: int) -> Tensor | None:
    """What `x[mask]` asks for the places in it that hold."""
    if facts.timeline.name_of(row) != PICKS:
        return None
    asked = [one for one in called_by(facts, row) if facts.timeline.name_of(one) == ASKS]
    mask = Arguments(facts.timeline.inputs_of(asked[0])).tensor(0) if len(asked) == 1 else None
    return mask if mask is not None and mask.dtype.lower() == "bool" else None


def _picked(facts: WorkFacts, heads: I64, of: I64, by: Passes, at: int) -> _Picked | None:
    """None where few are picked, or something but passes and sums reads them."""
    row = int(heads[at])
    mask, given = _mask(facts, row), Arguments(facts.timeline.inputs_of(row)).tensor(0)
    if mask is None or given is None or given.dims[: len(mask.dims)] != mask.dims:
        return None
    put = _put_back(facts, heads, of, at, mask, given)
    if put is not None:
        return _Picked(row, given, *by.atoms_of([row, put]), put=True)
    if not _is_summed(facts, heads, of, at, mask, given):
        return None
    return _Picked(row, given, *by.atoms_of([row]))


def _put_back(facts: WorkFacts, heads: I64, of: I64, at: int, mask: Tensor, given: Tensor) -> int | None:
    """The op that puts what was picked back by such a mask, if many are picked and all that reads such a
    tensor before it works number by number."""
    events, rest = facts.timeline.events, given.dims[len(mask.dims) :]
    last, products = end_of_step(facts, int(heads[at])), _products(facts, of)
    picked = None
    for row in heads[at + 1 :].tolist():
        if events.start[row] >= last or events.thread[row] != events.thread[heads[at]]:
            return None
        dims = [one.dims for one in Arguments(facts.timeline.inputs_of(row)).tensors()]
        if picked is None:
            fits = [one for one in dims if one[1:] == rest and len(one) == 1 + len(rest)]
            picked = fits[0] if fits else None
            if picked is not None and not FAIR_PART * mask.elements <= picked[0] <= mask.elements:
                return None
        if picked is None or picked not in dims:
            continue
        name = facts.timeline.name_of(row)
        if PUTS.match(name):
            inner = called_by(facts, row)
            inner += [below for one in inner for below in called_by(facts, one)]
            asked = [one for one in inner if facts.timeline.name_of(one) == ASKS]
            masks = [Arguments(facts.timeline.inputs_of(one)).tensor(0) for one in asked]
            return row if any(one is not None and one.dims == mask.dims for one in masks) else None
        if row in products or REDUCES.match(name) or ORDERS.search(name):
            return None
    return None


def _products(facts: WorkFacts, of: I64) -> set[int]:
    """The ops that Python called for products."""
    multiply, ops = facts.kernels.is_class(*MATRIX_CLASSES), facts.kernels.op
    return set(of[ops[multiply & (ops >= 0)]].tolist())


def _is_summed(facts: WorkFacts, heads: I64, of: I64, at: int, mask: Tensor, given: Tensor) -> bool:
    """Whether most are picked, told by the first op that reads what may be picked of this tensor, and all
    that reads such a tensor until the step is over is no product, and sums it in the end."""
    events = facts.timeline.events
    rest = given.dims[len(mask.dims) :]
    last = end_of_step(facts, int(heads[at]))
    products = _products(facts, of)
    picked, summed = None, False
    for row in heads[at + 1 :].tolist():
        if events.start[row] >= last or events.thread[row] != events.thread[heads[at]]:
            break
        dims = [one.dims for one in Arguments(facts.timeline.inputs_of(row)).tensors()]
        if picked is None:
            fits = [one for one in dims if one[1:] == rest and 0 < one[0] <= mask.elements]
            picked = fits[0] if fits else None
            if picked is not None and picked[0] < MAJORITY_SHARE * mask.elements:
                return False
        if picked is None or picked not in dims:
            continue
        if row in products:
            return False
        summed |= REDUCES.match(facts.timeline.name_of(row)) is not None
    return summed


def _likely(facts: WorkFacts, found: list[_Picked]) -> Change:
    """One pass forward and one back in place of all that picks and puts back."""
    parts = []
    for one in found:
        each = pass_ns(facts, one.given.elements * (NUMBER_BYTES * one.given.size + MASK_BYTES))
        parts += [(rows_of(facts, atoms), 1, each) for atoms in (one.forward, one.backward)]
    return in_few_kernels(parts)


FIX = Fix(MOVES, "needs-review", use, removes=True)
