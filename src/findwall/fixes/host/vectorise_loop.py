"""Replace a Python loop by ops on whole arrays or tensors.

What it does:
Python takes some 50 ns for the simplest step and microseconds for an op on one number; a loop over samples,
boxes, pairs or pixels keeps the host busy while the device waits. The same on whole arrays (NumPy) or on the
device's tensors (torch) is one call: a mask instead of `if`, broadcasting instead of two nested loops,
`cumsum`, `scatter_add` or `unique` instead of counters. Libraries have the usual ones: torchvision.ops.nms,
torch.cdist, vectorised environments (Gymnasium's, EnvPool), tokenisers that take a whole batch.

    loss = F.relu(dist[:, :, None] - dist[:, None, :] + margin).mean()    # instead of three loops

When it does not help:
The host does not loop, but writes a file, waits or serialises: move-io-off-step. Each round needs the one
before: Numba or C++ makes such a loop fast where it is; on the device torch-compile or cuda-graphs do, or the
whole recurrence as one op (nn.LSTM instead of nn.LSTMCell). A trace does not tell such rounds from others.

Risk:
Broadcasting writes what the loop never held at once: memory. Sums in another order differ in the last bits.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from findwall.facts.beside_the_model import averages
from findwall.facts.host_loops import Loop, is_backward, launched_by, loop_line, small_loops
from findwall.facts.user_lines import loops_call_routines, loops_in_python, parse_frame, pure_python, sampled
from findwall.facts.waits import is_in_host_ops
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    gain_ms,
    gone,
    ideal,
    no_use,
    of_class,
    on_cores,
    pieces,
    rows_of,
    small_kernels,
    step_ms,
)
from findwall.fixes.less_work.removed_work import CAUSES_ON_CORES, on_cores_too
from findwall.model.catalogue import (
    FAIR_PART,
    FEWEST_REPEATS,
    MAJORITY_SHARE,
    MATRIX_CLASSES,
    MENTION_SHARE,
    NEARLY_ALL,
    WORTH_IT,
)
from findwall.model.dataflow import LineLoop
from findwall.model.events import Kind
from findwall.model.machine import MATH_TYPES
from findwall.replay.change import Change, NoHostWork, NoWait, Scale
from findwall.step.call_names import in_window
from findwall.units import NOT_ZERO_NS, NS_PER_S, ms
from findwall.work.work_facts import WorkFacts

_FRAME = re.compile(r"\(\d+\): ")
CAUSES_OF_LOOPS = ("launch-bound", "host-work", "host-sync")
# Between the least that the kernels of all rounds must take and what they take today: in the logarithm.
_LEAST, _LIKELY, _MOST = 0.0, 0.5, 1.0


def use(facts: Facts) -> Outcome:
    return _by_lines(facts) or _on_the_device(facts) or _on_the_host(facts)


def _by_lines(facts: Facts) -> Outcome | None:
    """Loops of the job's own lines in which no round needs another; None where there is none worth it."""
    averaged = averages(facts)  # in lists, tensor after tensor: a fix of its own
    found = [
        one
        for one in facts.loops
        if not one.parameters and np.isin(one.atoms, averaged).mean() <= MAJORITY_SHARE
    ]
    launches = max(small_kernels(facts) * facts.steps.count, 1)
    of = Counter[str]()  # a step may come to a loop many times
    for one in found:
        of[one.place] += len(one.atoms)
    found = [one for one in found if of[one.place] > WORTH_IT * launches]
    if not found:
        return None
    most = found[0]
    # A host that reads a number in each round, or takes tensors, may decide by it what the next one does.
    asks = any(one.unseen or np.isin(facts.host.questions, one.calls).any() for one in found)
    figures: Figures = {
        "rounds": most.rounds,
        "body": most.ops,
        "issued": sum(len(one.atoms) for one in found) / facts.steps.count,
        "pieces": pieces(facts),
        "apart": not asks,
    }
    named = {"op": facts.op_name(int(most.atoms[0])) or "", "function": ""}
    said = "vectorise-loop/gradients" if most.gradients else "vectorise-loop/one-call"
    moved = tuple(one for one in CAUSES_OF_LOOPS if gain_ms(facts, one) > MENTION_SHARE * step_ms(facts))
    moved += on_cores_too(facts, np.concatenate([one.atoms for one in found]))
    return Use(
        Claim(said, figures, named, [most.place]),
        _at_once(facts, found, _LEAST),
        moved or CAUSES_OF_LOOPS,
        likely=lambda made: _at_once(facts, found, _LIKELY),
        may=(lambda made: _at_once(facts, found, _LEAST), lambda made: _at_once(facts, found, _MOST)),
        uncurved=True,
        condition="rounds-independent" if asks else "",
    )


def _at_once(facts: Facts, loops: list[LineLoop], how: float) -> Change:
    """One round that does the work of all: the others are neither issued nor waited for. Its kernels take
    what all of them took, or as little as they must, or something between."""
    change = Change()
    keeps_host = loops_call_routines(facts)
    for one in loops:
        first, others = one.atoms[one.first], one.atoms[~one.first]
        own = facts.atoms.own
        alone = max(float(own[first].sum()), NOT_ZERO_NS)
        must = max(alone, _least_ns(facts, one))
        times = must ** (1.0 - how) * max(_most_ns(facts, one), must) ** how / alone
        rows = np.unique(rows_of(facts, first))
        change += gone(facts, others) + Change(
            (NoWait(calls=one.calls), Scale(rows, np.full(len(rows), times)))
        )
        if not keeps_host:
            change += Change((NoHostWork(rows_of(facts, others)),))
    return change


def _least_ns(facts: Facts, one: LineLoop) -> float:
    """What the kernels of all rounds must take: their bytes and products. On cores their products alone: what
    every round reads, as weights or a mask over all, is read once, and small parts come from a cache."""
    floor = facts.atoms.floor[one.atoms]
    if not on_cores(facts):
        return float(np.nansum(floor))
    index = facts.atoms.index[one.atoms]
    ceiling = np.array([facts.ceilings.flops.get(name, np.inf) for name in MATH_TYPES] + [np.inf])
    products = facts.kernels.flops[index] / ceiling[facts.kernels.math_index[index]] * NS_PER_S
    mine = of_class(facts, *MATRIX_CLASSES)[one.atoms]
    return float(np.nansum(np.minimum(products, facts.atoms.own[one.atoms])[mine]))


def _most_ns(facts: Facts, one: LineLoop) -> float:
    """What the kernels of all rounds take today. On cores, where rounds work on parts of many sizes, what is
    of one size in nearly all of them is of the whole, and done once for all."""
    own = facts.atoms.own[one.atoms]
    op, events = facts.kernels.op[facts.atoms.index[one.atoms]], facts.timeline.events
    key = events.name[op].astype(np.int64) * (len(facts.timeline.details.inputs) + 1) + events.inputs[op]
    _, group, count = np.unique(key, return_inverse=True, return_counts=True)
    whole = count[group.reshape(-1)] >= NEARLY_ALL * one.rounds * facts.steps.count
    if not on_cores(facts) or whole.mean() > 1.0 - FAIR_PART:
        return float(own.sum())
    return float(own[~whole].sum() + own[whole].sum() / one.rounds)


def _on_the_device(facts: Facts) -> Outcome | None:
    """Small ops that a loop launches round after round; None where there is none worth it."""
    if gain_ms(facts, "launch-bound") <= MENTION_SHARE * step_ms(facts):
        return None
    found = small_loops(facts)
    atoms = launched_by(found)
    launches = small_kernels(facts) * facts.steps.count
    own = [one for one in found if not is_backward(facts, one)]
    if not own or len(atoms) <= WORTH_IT * launches:
        return None
    # Where most of the step is such a loop, so is most of the Python between its ops.
    mostly = len(atoms) > MAJORITY_SHARE * launches
    moves = ("launch-bound", "host-work") if mostly else ("launch-bound",)
    # What rounds wait for in between goes with them, and what is launched for it: such rounds are of several
    # lengths, so that not all of them are seen as rounds.
    waits = facts.spent_ms("host-sync") > MENTION_SHARE * step_ms(facts)
    host = ("launch-bound", "host-work", "host-sync") if waits else moves[1:]
    longest = max(own, key=lambda one: len(one.atoms))
    issued: Figures = {"issued": len(atoms) / facts.steps.count, "pieces": pieces(facts)}
    figures = {"rounds": longest.rounds, "body": longest.body, **issued}
    names, places = _named(facts, longest, mostly)
    return Use(
        Claim("vectorise-loop/one-call", figures, names, places),
        # A scan does in a few kernels what rounds that need each other do one by one, and no Python between.
        gone(facts, atoms) + Change((NoHostWork(rows_of(facts, atoms)),)) + ideal(facts, *host),
        moves,
        condition="rounds-independent",
    )


def _named(facts: WorkFacts, loop: Loop, mostly: bool) -> tuple[dict[str, str], list[str]]:
    """Its first op and line, by the stack of that op; without one, where the host was seen if it mostly does
    this, with the function."""
    names = {"op": facts.op_name(int(loop.atoms[0])) or "", "function": ""}
    line = loop_line(facts, loop)
    seen = sampled(facts, between_ops=True) if line is None and mostly else None
    if seen is not None:
        return {**names, "function": seen.function}, [seen.place]
    return names, [line] if line is not None else []


def _on_the_host(facts: Facts) -> Outcome:
    """Python with no op under it, where a sampler or recorded stacks say where it stands."""
    spent = facts.spent_ms("host-work")
    if spent <= FAIR_PART * step_ms(facts):
        return no_use("vectorise-loop/none")
    best = ideal(
        facts, "host-work", "copy-exposed"
    )  # on the device's tensors there is nothing to send either
    called = _called_often(facts)
    if called is not None:
        return Use(called, best, ("host-work",))
    lines = pure_python(facts)
    if not facts.rank.host_lines:
        return cannot_tell("vectorise-loop/unseen")
    if not loops_in_python(facts):
        return no_use("vectorise-loop/in-libraries")
    lines = [line for line in lines if line.looped is not False]
    if sum(line.share for line in lines) < FAIR_PART:
        return no_use("vectorise-loop/no-loop")
    if is_in_host_ops(facts):
        return no_use("vectorise-loop/in-ops")
    figures = {"samples_share": sum(line.share for line in lines), "waits_ms": spent}
    seen = [Claim("line/of", names={"function": line.function}, places=[line.place]) for line in lines]
    claim = Claim("vectorise-loop/seen-at", figures, parts=seen)
    return Use(claim, best, ("host-work",), condition="host-loops")


def _called_often(facts: Facts) -> Claim | None:
    """A function of the person's own that is called over and over where no op runs, its line, and how often a
    step."""
    events = facts.timeline.events
    rows = in_window(facts, facts.timeline.rows(Kind.PYTHON))
    quiet = events.duration[rows] - facts.host.working.covered_within(events.start[rows], events.end[rows])
    names, group = np.unique(events.name[rows], return_inverse=True)
    total = np.bincount(group.reshape(-1), quiet, minlength=len(names)) / facts.steps.count
    count = np.bincount(group.reshape(-1), minlength=len(names)) / facts.steps.count
    spent = facts.spent_ms("host-work")
    for at in np.argsort(-total).tolist():
        name = facts.timeline.names[int(names[at])]
        frame = parse_frame(name) if _FRAME.search(name) else None
        long = ms(float(total[at])) > MAJORITY_SHARE * spent
        if frame is not None and frame.own and long and count[at] >= FEWEST_REPEATS:
            figures = {"times": float(count[at]), "waits_ms": spent}
            return Claim("vectorise-loop/called-often", figures, {"function": frame.function}, [frame.place])
    return None


FIX = Fix(("host-work", "launch-bound", "host-sync", *CAUSES_ON_CORES), "needs-review", use)
