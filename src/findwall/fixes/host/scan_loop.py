"""Do a recurrence over time in a few ops on all of its steps: a scan, `cumsum`, or a compiled loop.

What it does:
`acc = x[t] + a[t] * acc` needs the round before, so that a Python loop launches a few tiny kernels for every
t. But what two such rounds do is a round again, of the product of their factors: in log2(T) rounds over all t
at once every t has its sum. This is a sketch of it, for dimension 0 and time going forward:

    a, s = a.clone(), 1
    while s < len(x):
        x = torch.cat([x[:s], x[s:] + a[s:] * x[:-s]])
        a, s = torch.cat([a[:s], a[s:] * a[:-s]]), 2 * s
    # x[t] now holds acc after round t; for time going backward flip(0) before and after

Where all factors are one it is `torch.cumsum`. A loop that is not linear in what it carries has no such form:
compile the loop (`torch.compile` on the function that holds it), or write it as one kernel.

When it does not help:
No round needs the one before: then vectorise-loop is simpler. Rounds that hold large products fill the device
by themselves.

Risk:
Factors are multiplied with each other: where they are large, products overflow, where they are small they
vanish, and sums add up in another order. It takes log2(T) times the memory while gradients are recorded.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from findwall.facts.called_atoms import of_heads
from findwall.facts.host_loops import unbinding
from findwall.facts.likely_times import pass_ns
from findwall.facts.user_lines import line_of, sampled
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    Outcome,
    Use,
    gone,
    lines,
    no_use,
    pieces,
    rows_of,
    small_kernels,
)
from findwall.fixes.refusals import REPLAYED
from findwall.model.catalogue import FEWEST_REPEATS, LONGEST_ROUND, MAJORITY_SHARE, WORTH_IT
from findwall.model.intervals import I64
from findwall.replay.change import Change, Drop, NoHostWork, Replace
from findwall.step.call_names import in_window
from findwall.step.called_ops import heads_of
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts

PICK = "aten::select"
PUT = "aten::copy_"
ADDS = frozenset({"aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::rsub"})
SCALES = frozenset({"aten::mul", "aten::mul_", "aten::div", "aten::div_"})
BOTH = frozenset({"aten::addcmul", "aten::addcmul_", "aten::lerp", "aten::lerp_"})
HANDS_ON = frozenset({PICK, PUT, "aten::detach", "aten::unsqueeze", "aten::view"})
GATHERS = frozenset({"aten::stack", "aten::cat"})
SOON = 8  # ops: of the last round, and what turns the list round
# Of each doubling: two pieces put behind each other twice, two products and a sum; all t are read for each of
# them, and written.
KERNELS_A_ROUND, PASSES = 7, 3


def plain(torch: Any, x: Any, a: Any) -> Any:
    """As it is written today: acc = x[t] + a[t] * acc, one t after the other."""
    acc, found = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        acc = x[t] + a[t] * acc
        found.append(acc)
    return torch.stack(found)


def cheaper(torch: Any, x: Any, a: Any) -> Any:
    """The same in log2(T) rounds over all of them."""
    s = 1
    while s < len(x):
        x = torch.cat([x[:s], x[s:] + a[s:] * x[:-s]])
        a = torch.cat([a[:s], a[s:] * a[:-s]])
        s *= 2
    return x


class _Scan(msgspec.Struct, frozen=True):
    """Loops of one kind, in the counted steps."""

    first: int  # the op that begins the first round
    rounds: int  # of one loop
    loops: int  # in all
    ops: int  # that Python calls in a round, parts taken left out
    part: Tensor  # what a round works on
    forward: I64  # atoms
    backward: I64
    gathers: I64  # what puts the rounds' results together
    next: I64  # what comes behind it: by then Python has given back all of them

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])


def use(facts: Facts) -> Outcome:
    found = _scan(facts)
    # Where tensors were followed it is known that no round reads what another made.
    apart = [one.atoms for one in facts.loops]
    if found is None or np.isin(found.atoms, np.concatenate(apart or [found.next])).mean() > MAJORITY_SHARE:
        return no_use("scan-loop/none")
    launched = len(found.atoms) / facts.steps.count
    if launched <= WORTH_IT * small_kernels(facts):
        return no_use("scan-loop/few")
    mostly = launched > MAJORITY_SHARE * small_kernels(facts)
    line = line_of(facts, found.first)
    seen = sampled(facts, between_ops=True) if line is None and mostly else None
    figures: Figures = {
        "rounds": found.rounds,
        "ops": found.ops,
        "issued": launched,
        "pieces": pieces(facts),
        "doublings": _doublings(found),
    }
    claim = Claim(
        "scan-loop/doubling", figures, places=lines(line or (seen.place if seen is not None else None))
    )
    # The Python between its ops is the loop's as well.
    around = np.concatenate([found.atoms, found.gathers, found.next])
    python = Change((NoHostWork(np.unique(rows_of(facts, around))),)) + gone(facts, found.gathers)
    return Use(
        claim,
        gone(facts, found.atoms) + python,
        FIX.moves if mostly else FIX.moves[:1],
        likely=lambda made: _likely(facts, found) + python,
        condition="rounds-linear",
    )


def _doublings(found: _Scan) -> int:
    return math.ceil(math.log2(found.rounds))


def _likely(facts: WorkFacts, found: _Scan) -> Change:
    """A few kernels for each doubling, over all rounds' numbers."""
    each = pass_ns(facts, PASSES * found.rounds * found.part.elements * found.part.size)
    kept: list[int] = []
    gone_rows: list[int] = []
    stay = KERNELS_A_ROUND * _doublings(found) * found.loops
    for atoms in (found.forward, found.backward):
        rows = np.unique(rows_of(facts, atoms))
        mine = np.unique(np.linspace(0, len(rows) - 1, min(stay, len(rows))).astype(np.int64))
        kept += rows[mine].tolist() if len(rows) else []
        gone_rows += np.delete(rows, mine).tolist() if len(rows) else []
    return Change(
        (Replace(np.array(kept, np.int64), np.full(len(kept), each)), Drop(np.array(gone_rows, np.int64)))
    )


def _scan(facts: WorkFacts) -> _Scan | None:
    """Rounds that each take the next part of a tensor, do nothing but scale and add, and read more than the
    parts that they take: what the round before left."""
    heads = in_window(facts, heads_of(facts))
    names = [facts.timeline.name_of(row) for row in heads.tolist()]
    taken = _by_index(facts, heads, names) or _taken_apart(facts, heads, names)
    if taken is None:
        return None
    body, rounds, parts = taken
    part = _carried(facts, heads[rounds[0] : rounds[0] + len(body)], parts)
    if part is None:
        return None
    apart = [1 for a, b in pairwise(rounds) if b - a > len(body)]
    loops = len(apart) + 1
    mine = heads[[place for at in rounds for place in range(at, at + len(body))]]
    by = of_heads(facts, heads)
    forward, backward = by.atoms_of(mine)
    ends = [at + len(body) for at in rounds if at + len(body) not in set(rounds)]
    gathers = [at for at in _soon(names, ends) if names[at] in GATHERS]
    behind = [at + 1 for at in gathers if at + 1 < len(heads)]
    return _Scan(
        first=int(heads[rounds[0]]),
        rounds=round(len(rounds) / loops),
        loops=loops,
        ops=sum(name not in HANDS_ON for name in body),
        part=part,
        forward=forward,
        backward=backward,
        gathers=np.flatnonzero(np.isin(by.forward, heads[gathers])) if gathers else forward[:0],
        next=np.flatnonzero(np.isin(by.forward, heads[behind])) if behind else forward[:0],
    )


Taken = tuple[tuple[str, ...], list[int], int]  # ops of a round, where rounds begin, parts that none picks


def _by_index(facts: StepFacts, heads: I64, names: list[str]) -> Taken | None:
    """Rounds that each pick the next part of a tensor."""
    begins = _begins(facts, heads, names)
    usual = Counter(tuple(names[a:b]) for a, b in pairwise(begins) if b - a <= LONGEST_ROUND).most_common(1)
    if not usual or usual[0][1] < (FEWEST_REPEATS - 1) * facts.steps.count:
        return None
    body = usual[0][0]
    return body, [at for at in begins if tuple(names[at : at + len(body)]) == body], 0


def _taken_apart(facts: StepFacts, heads: I64, names: list[str]) -> Taken | None:
    """Rounds over the parts of a tensor, or of several, that was taken apart before the first."""
    stretches = Counter((one.first, one.end, one.body) for one in unbinding(facts, heads))
    if not stretches:
        return None
    longest = max(stretches, key=lambda one: one[1] - one[0])
    body = tuple(names[longest[0] : longest[0] + longest[2]])
    # A stretch may begin within a round: what adds up comes last.
    last = max((at for at, name in enumerate(body) if name in ADDS | BOTH), default=len(body) - 1)
    body = body[last + 1 :] + body[: last + 1]
    rounds = [
        at
        for first, end, size in stretches
        for at in range(first + (last + 1) % len(body), end - size + 1, size)
        if tuple(names[at : at + size]) == body
    ]
    return (body, rounds, stretches[longest]) if rounds else None


def _soon(names: list[str], ends: list[int]) -> list[int]:
    """The first ops behind a loop, its last round among them: that may differ from the others."""
    return [at for end in ends for at in range(end, min(end + SOON, len(names)))]


def _begins(facts: StepFacts, heads: I64, names: list[str]) -> list[int]:
    """Where rounds begin: the first time that a part is taken, next to the last that was taken."""
    found: list[int] = []
    last, opened = None, -1
    for place, name in enumerate(names):
        if name != PICK:
            continue
        given = Arguments(facts.timeline.inputs_of(int(heads[place])))
        source, along, index = given.tensor(0), given.number(1), given.number(2)
        if source is None or along is None or index is None:
            continue
        now = (source.dims, along, index)
        if last is not None and last[:2] == now[:2] and abs(index - last[2]) == 1:
            found += [place] if found and found[-1] == opened else [opened, place]
        if now != last:
            opened = place
        last = now
    return found


def _carried(facts: StepFacts, heads: I64, picks: int) -> Tensor | None:
    """What a round of these ops works on, where it is linear in something that it does not take as a part.
    `picks`: parts that were taken before.

    Each op gives one result, and all but the last are read within the round: what else is read comes from
    parts, or from before. A part that is taken to be written, as in `out[t] = acc`, is read by none."""
    read, done, part, before = 0, list[str](), None, ""
    for row in heads.tolist():
        name, given = facts.timeline.name_of(row), Arguments(facts.timeline.inputs_of(row))
        tensors = given.tensors()
        picks += (name == PICK) - (name == PUT and before == PICK)
        before = name
        if name == PICK:
            continue
        if name not in HANDS_ON:
            if name not in ADDS | SCALES | BOTH:
                return None
            if not tensors:  # a factor, or what is added, is worked out anew in every round
                continue
            part = part or max(tensors, key=lambda one: one.elements)
            if any(one.elements > part.elements for one in tensors):
                return None
            read += len(tensors)
            done.append(name)
    adds = bool(set(done) & (ADDS | BOTH))
    return part if part is not None and adds and read - (len(done) - 1) > picks else None


FIX = Fix(("launch-bound", "host-work"), "needs-review", use, (REPLAYED,), removes=True)
