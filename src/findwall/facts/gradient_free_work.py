"""Work without gradients in a job that trains: evaluations, teachers, frozen networks, rollouts.

A stretch of ops that record no gradients (`step/called_ops.py`), and are of no update and no average, is
forward work where it runs a layer that multiplies by its weights. A function with a backward of its own is
numbered in any case: one that an evaluation calls is not counted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

import msgspec
import numpy as np

from findwall.facts.facts import Facts, of_class, rows_of, serve
from findwall.facts.user_lines import line_of, parse_frame, sampled
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.claims import Claim
from findwall.model.dataflow import ROLES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.step.called_ops import MADE_FROM_NOTHING, backward_starts, head_of, heads_of, records
from findwall.step.step_facts import StepFacts, found_once
from findwall.step.timed_steps import evaluating, traced_kinds
from findwall.units import NOT_ZERO_NS, ms
from findwall.work.work_facts import WorkFacts

# Where its results go: nowhere that training needs, into the loss; unknown where no graph tells.
Flows = Literal["nothing", "loss", "unknown"]
_LAYER = re.compile(r"^aten::(linear|conv\dd|convolution|embedding|lstm|gru|scaled_dot_product_attention)$")
_COMPILED = re.compile(r"^Torch-Compiled Region")
# What a pass neither begins nor ends with: ops without a tensor to work on, which have no number in any case,
# and changes in place, as averages of the weights are made.
_BESIDE = re.compile(rf"^aten::({MADE_FROM_NOTHING}|detach|_foreach_)|^aten::\w*_$|^TorchDynamo Cache Lookup")


class Gradientless(msgspec.Struct, frozen=True):
    """What most steps of a job that trains do without gradients, or most of those that evaluate."""

    atoms: I64  # of the device
    later: I64  # its device rows but for the first of each pass: what the device waits for before is inside
    ms: float  # a step, with what the device waits inside
    share: float  # of the step
    place: str  # the person's own line, with its function; empty where nothing tells
    flows_into: Flows
    evaluates: bool  # nothing that training needs, or a hook saw the model in evaluation mode


@found_once
def without_gradients(facts: Facts) -> Gradientless | None:
    """None where the job does not train, or does little of it, or not in most steps."""
    if not facts.links.backward.any():
        return None
    heads = heads_of(facts)
    numbered = records(facts, heads)
    if not numbered.any():
        return None
    stretches = _stretches(facts, heads, numbered)
    atoms, later = _atoms_within(facts, heads, stretches)
    spent = _spent_ms(facts, atoms, later)
    share = spent / ms(facts.step) if facts.step > 0 else 0.0
    seen = _in_evaluating_steps(facts, atoms)
    if share < FAIR_PART or not (seen or _in_most_steps(facts, atoms)):
        return None
    place = _place(facts, heads, stretches, share)
    flows = _flows_into(facts, atoms)
    evaluates = flows == "nothing" or (flows == "unknown" and (seen or facts.rank.evaluates))
    return Gradientless(atoms, later, spent, share, place, flows, evaluates)


def _flows_into(facts: Facts, atoms: I64) -> Flows:
    """Where most of it goes."""
    most = MAJORITY_SHARE * float(facts.own[atoms].sum())
    rows = rows_of(facts, atoms)
    if float(facts.own[atoms[serve(facts, rows, "evaluation")]].sum()) > most:
        return "nothing"
    if float(facts.own[atoms[serve(facts, rows, "teacher")]].sum()) > most:
        return "loss"
    return "unknown"


def is_forward_work(found: Gradientless) -> Claim:
    """How much it is, and where."""
    figures = {"spent_ms": found.ms, "step_share": found.share}
    place, _, function = found.place.partition(" in ")
    return Claim(
        "without-gradients/forward-work", figures, {"function": function}, [place] if found.place else []
    )


def beside_gradients(facts: Facts) -> list[Claim]:
    """A sentence more, where doing the same work faster is not all that could be done; empty elsewhere."""
    found = without_gradients(facts)
    if found is None or found.flows_into == "loss":
        return []
    return [Claim("forward/without-gradients", parts=[is_forward_work(found)])]


def _stretches(facts: WorkFacts, heads: I64, numbered: Bool) -> list[tuple[int, int]]:
    """Runs of forward work without gradients: places in the list of heads, the last not included."""
    events = facts.timeline.events
    updates = [ROLES.index("update"), ROLES.index("average")]
    plain = ~numbered & ~np.isin(facts.roles[heads], updates)
    passes = np.searchsorted(backward_starts(facts), events.start[heads])
    apart = (np.diff(passes) != 0) | (np.diff(events.thread[heads]) != 0)
    edges = np.flatnonzero(np.concatenate([[True], apart | (plain[1:] != plain[:-1]), [True]]))
    beside = facts.timeline.named(_BESIDE, heads)[events.name[heads]]
    layer = _holds_layer(facts, heads)
    found = []
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        work = np.flatnonzero(~beside[first:end])
        if plain[first] and layer[first:end].any() and len(work):
            found.append((first + int(work[0]), first + int(work[-1]) + 1))
    return found


def _holds_layer(facts: StepFacts, heads: I64) -> Bool:
    """Which of these ops run a layer of a model."""
    ops = facts.timeline.rows(Kind.OP)
    names = facts.timeline.events.name[ops]
    named = facts.timeline.named(_LAYER, ops)[names] | facts.timeline.named(_COMPILED, ops)[names]
    return np.isin(heads, head_of(facts, heads)[ops[named]])


def _atoms_within(facts: WorkFacts, heads: I64, stretches: list[tuple[int, int]]) -> tuple[I64, I64]:
    """The device's work for stretches that multiply at all; its rows but for the first of each stretch."""
    rows = rows_of(facts, np.arange(len(facts.atoms.index)))
    launch = facts.links.launch[rows]
    place = np.full(len(facts.timeline.events), -1)
    for number, (first, end) in enumerate(stretches):
        place[heads[first:end]] = number
    head = np.where(launch >= 0, head_of(facts, heads)[launch], -1)
    of = np.where(head >= 0, place[np.maximum(head, 0)], -1)
    multiplies = np.unique(of[of_class(facts, *MATRIX_CLASSES)])
    atoms: I64 = np.flatnonzero((of >= 0) & np.isin(of, multiplies))
    issued = facts.timeline.events.start[launch[atoms]]
    first_issued = np.full(len(stretches), np.iinfo(np.int64).max)
    np.minimum.at(first_issued, of[atoms], issued)
    return atoms, np.unique(rows[atoms[issued > first_issued[of[atoms]]]])


def _spent_ms(facts: Facts, atoms: I64, later: I64) -> float:
    """Of the mean step: the device's time, and its waits inside a pass. What it waits for before may be the
    next batch of training."""
    gaps, idle = facts.reading.likely.gaps, facts.reading.likely.idle
    waits = np.isin(gaps.row, later)
    waited = sum(float(column[waits].sum()) for column in gaps.before.values())
    whole = sum(float(column.sum()) for column in gaps.before.values())
    scale = min(idle.total / max(whole, NOT_ZERO_NS), 1.0)
    return ms(float(facts.own[atoms].sum()) + waited * scale)


def _in_most_steps(facts: WorkFacts, atoms: I64) -> bool:
    return len(_steps_of(facts, atoms)) > MAJORITY_SHARE * facts.steps.count


def _in_evaluating_steps(facts: WorkFacts, atoms: I64) -> bool:
    """Whether most of the steps in which a hook saw the model in evaluation mode hold some of it."""
    names = [kind.name for kind in evaluating(facts.rank)]
    kinds = traced_kinds(facts.rank, facts.timeline, facts.queue)
    places = [at for at, name in enumerate(kinds) if name in names]
    return len(places) > 0 and float(np.isin(places, _steps_of(facts, atoms)).mean()) > MAJORITY_SHARE


def _steps_of(facts: WorkFacts, atoms: I64) -> I64:
    return np.unique(facts.queue.step[facts.queue.positions(np.unique(rows_of(facts, atoms)))])


def _place(facts: StepFacts, heads: I64, stretches: list[tuple[int, int]], share: float) -> str:
    """The innermost frame of the person's own around the longest stretch; without frames, the line that most
    of it was called from, where that was followed, or one on which the host was seen more often than in all
    the rest of the step."""
    events = facts.timeline.events
    lengths = [int(events.end[heads[end - 1]] - events.start[heads[first]]) for first, end in stretches]
    first, end = stretches[int(np.argmax(lengths))]
    around = set(facts.links.ancestors(int(heads[end - 1])))
    for row in facts.links.ancestors(int(heads[first])):
        frame = parse_frame(facts.timeline.name_of(row)) if events.kind[row] == Kind.PYTHON else None
        if row in around and frame is not None and frame.own:
            return f"{frame.place} in {frame.function}"
    called = Counter(place for row in heads[first:end].tolist() if (place := line_of(facts, row)) is not None)
    if called:
        return called.most_common(1)[0][0]
    line = sampled(facts)
    return f"{line.place} in {line.function}" if line is not None and line.share > 1.0 - share else ""
