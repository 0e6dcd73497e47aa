"""Check and clip all gradients at once: `clip_grad_norm_`, `torch._foreach_norm`, one read for all of them.

What it does:
A loop over parameters that asks each gradient for its norm, or whether it is finite, launches a few kernels
for each of them and waits for every answer. `clip_grad_norm_` takes all norms in a few launches, clips in a
few more, and its result tells of all of them: where one number is infinite or NaN, so is the norm.

    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)     # clips, too
    norms = torch._foreach_norm([p.grad for p in model.parameters()])       # of each, for a log
    ok = bool(torch.isfinite(norm))                                         # one wait, or none: torch.where

When it does not help:
The loop is over a few tensors, or already runs on lists.

Risk:
Norms add up in another order: the last bits differ. A check that stops at the first bad gradient now sees
all of them.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from findwall.facts.best_changes import in_lists, lists_at_best
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    as_on_cores,
    lines,
    no_use,
    rows_of,
    small_kernels,
)
from findwall.fixes.less_work.removed_work import CAUSES_ON_CORES, on_cores_too
from findwall.fixes.refusals import REPLAYED
from findwall.model.catalogue import FEWEST_REPEATS, LONGEST_ROUND, NEARLY_ALL, WORTH_IT
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change, Drop, NoWait
from findwall.step.call_names import GRADIENT, in_window, sync_rows
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments
from findwall.work.work_facts import WorkFacts

MOVES = ("launch-bound", "host-sync")
NORMS = ("aten::linalg_vector_norm", "aten::norm", "aten::_foreach_norm")
CHECKS = frozenset({"aten::isnan", "aten::isinf", "aten::isfinite", *NORMS[:2]})
CLIPS = frozenset({"aten::mul_", "aten::clamp_", "aten::div_"})
Shape = tuple[int, ...]


def plain(torch: Any, gradients: list[Any], max_norm: float) -> tuple[Any, ...]:
    """As it is written today: one gradient after the other, and a wait for each; then what is clipped."""
    total = 0.0
    for one in gradients:
        if torch.isnan(one).any() or torch.isinf(one).any():
            return tuple(gradients)
        total += one.norm(2).item() ** 2
    scale = max_norm / (total**0.5 + 1e-6)
    return tuple(one * scale if scale < 1.0 else one.clone() for one in gradients)


def cheaper(torch: Any, gradients: list[Any], max_norm: float) -> tuple[Any, ...]:
    """The same on lists; what is infinite or NaN in one is so in the norm of all."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if not torch.isfinite(norm):
        return tuple(gradients)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return tuple(torch._foreach_mul(gradients, scale))


class _Rounds(msgspec.Struct, frozen=True):
    """A loop over gradients, in the counted steps."""

    first: int  # the op of the first round
    gradients: float  # of a step
    atoms: I64  # that it launched
    norms: I64  # of these: one op of each round, which stays, in lists
    clips: I64  # what scales the gradients afterwards, one by one
    waits: I64  # calls in its rounds that wait for the device


def use(facts: Facts) -> Outcome:
    found = _rounds(facts)
    if found is None:
        return no_use("foreach-checks/none")
    launched = (len(found.atoms) + len(found.clips)) / facts.steps.count
    if launched <= WORTH_IT * small_kernels(facts):
        return no_use("foreach-checks/few")
    figures = {
        "gradients": found.gradients,
        "kernels": launched,
        "waits": len(found.waits) / facts.steps.count,
        "clips": len(found.clips) > 0,
        **as_on_cores(facts),
    }
    stay = np.concatenate([found.norms, found.clips])
    dropped = np.setdiff1d(rows_of(facts, found.atoms), rows_of(facts, stay))
    # A job that skips bad steps waits once, for all of them: the last wait of each step stays.
    step = np.searchsorted(facts.steps.host, facts.timeline.events.start[found.waits], side="right")
    last = np.append(step[1:] != step[:-1], True) if len(step) else np.zeros(0, bool)
    rest = Change((Drop(dropped), NoWait(calls=found.waits[~last])))
    at_best = Change((Drop(dropped), NoWait(calls=found.waits)))
    return Use(
        Claim("foreach-checks/lists", figures, places=lines(line_of(facts, found.first))),
        lists_at_best(facts, stay) + at_best,
        (*(MOVES if len(found.waits) else MOVES[:1]), *on_cores_too(facts, found.atoms)),
        likely=lambda made: in_lists(facts, stay) + rest,
    )


def _rounds(facts: WorkFacts) -> _Rounds | None:
    """Rounds that call the same ops, each on a tensor of the shape of another gradient."""
    heads = in_window(facts, heads_of(facts))
    names = [facts.timeline.name_of(row) for row in heads.tolist()]
    wanted = _gradients(facts)
    count = Counter(name for name in names if name in CHECKS)
    if not count or not wanted:
        return None
    # A round may check more than once: what comes most often, and first, begins it.
    begins = max(count, key=lambda name: (count[name], -names.index(name)))
    places = [at for at, name in enumerate(names) if name == begins]
    between = [tuple(names[a:b]) for a, b in pairwise(places)]
    usual = Counter(one for one in between if len(one) <= LONGEST_ROUND).most_common(1)
    if not usual or usual[0][1] < (FEWEST_REPEATS - 1) * facts.steps.count:
        return None
    body = usual[0][0]
    rounds = [at for at in places if tuple(names[at : at + len(body)]) == body]
    shapes = Counter(_shape(facts, int(heads[at])) for at in rounds)
    if not _are_gradients(shapes, wanted, facts.steps.count):
        return None
    end = max(rounds) + len(body)
    clips = [
        at for at in range(len(heads)) if names[at] in CLIPS and _follows(facts, heads, at, rounds, body)
    ]
    clips = clips if _are_gradients(Counter(_shape(facts, int(heads[at])) for at in clips), wanted, 1) else []
    clips = clips if len(clips) >= FEWEST_REPEATS * facts.steps.count else []
    mine = {int(heads[place]) for at in rounds for place in range(at, min(at + len(body), end))}
    return _of_heads(facts, heads, mine, rounds, body, clips)


def _gradients(facts: StepFacts) -> Counter[Shape]:
    """Shapes of what parameters get in the counted steps, and how often."""
    rows = facts.timeline.rows_named(GRADIENT, Kind.OP)
    return Counter(_shape(facts, row) for row in rows.tolist())


def _shape(facts: StepFacts, row: int) -> Shape:
    tensor = Arguments(facts.timeline.inputs_of(row)).tensor(0)
    return tensor.dims if tensor is not None else ()


def _are_gradients(shapes: Counter[Shape], wanted: Counter[Shape], steps: int) -> bool:
    """Whether such tensors are gradients: of several shapes, all of which parameters have as often."""
    hit = sum(min(times, wanted[shape]) for shape, times in shapes.items() if shape)
    return len(shapes) > 1 and hit >= NEARLY_ALL * sum(shapes.values()) >= FEWEST_REPEATS * steps


def _follows(facts: StepFacts, heads: I64, at: int, rounds: list[int], body: tuple[str, ...]) -> bool:
    """Whether an op is in the run of the same op that comes right behind a round."""
    name = facts.timeline.events.name[heads]
    while at > 0 and name[at - 1] == name[at]:
        at -= 1
    return at - len(body) in set(rounds)


def _of_heads(
    facts: WorkFacts, heads: I64, mine: set[int], rounds: list[int], body: tuple[str, ...], clips: list[int]
) -> _Rounds:
    of = head_of(facts, heads)
    op = facts.kernels.op[facts.atoms.index]
    head = np.where(op >= 0, of[np.maximum(op, 0)], -1)
    atoms = np.flatnonzero(np.isin(head, sorted(mine)))
    # The norm is what the other form takes of each; without one, the first check stands for it.
    at = next((place for place, name in enumerate(body) if name in NORMS), 0)
    keeps = heads[[one + at for one in rounds]]
    waits = sync_rows(facts)
    waits = waits[np.isin(of[waits], sorted(mine))]
    return _Rounds(
        first=int(heads[rounds[0]]),
        gradients=len(rounds) / facts.steps.count,
        atoms=atoms,
        norms=_one_each(head, np.flatnonzero(np.isin(head, keeps))),
        clips=np.flatnonzero(np.isin(head, heads[clips])) if clips else atoms[:0],
        waits=waits[np.argsort(facts.timeline.events.start[waits], kind="stable")],
    )


def _one_each(head: I64, atoms: I64) -> I64:
    return atoms[np.unique(head[atoms], return_index=True)[1]]


FIX = Fix((*MOVES, *CAUSES_ON_CORES), "safe", use, (REPLAYED,), reorders=True)
