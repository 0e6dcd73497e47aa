"""Where the host stood: the nearest frame of the person's own code.

Where a trace has no stacks, the lines that a sampler saw speak instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from findwall.facts.facts import Facts
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MENTION_SHARE
from findwall.model.claims import Claim, Evidence
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.model.measured_run import HostLine
from findwall.step.call_names import LIBRARY, PROFILED_FRAME, in_window, is_own
from findwall.step.called_ops import heads_of
from findwall.step.step_facts import StepFacts, found_once
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

# Both chosen by hand, not calibrated.
LINES_SHOWN = 2  # of the sampler's: one row of evidence is left for the trace
# Functions of torch that do nothing but run ops: a module, the backward pass, an optimizer's arithmetic.
_RUNS_OPS = re.compile(
    r":(forward|_engine_run_backward|_(single_tensor|multi_tensor|fused)_\w+)$|^functional\.py:"
)


class Frame(msgspec.Struct, frozen=True):
    place: str  # "train.py:88"
    function: str
    own: bool  # the person's code, not a library's


def parse_frame(name: str) -> Frame | None:
    """ "train.py(88): main" as a frame; None for what is not one (built-ins, modules)."""
    found = PROFILED_FRAME.match(name)
    if found is None:
        return None
    path = found["file"].replace("\\", "/")
    return Frame(f"{path.rpartition('/')[2]}:{found['line']}", found["function"], is_own(path))


def line_of(facts: StepFacts, row: int) -> str | None:
    """The nearest line of the person's own code around a host row, or around the forward op of one."""
    forward = int(facts.links.forward[row]) if row >= 0 else -1
    frame = _nearest_own(facts, row) or _nearest_own(facts, forward)
    return frame.place if frame is not None else _seen_at(facts, forward) or _seen_at(facts, row)


def line_of_most(facts: WorkFacts, atoms: I64) -> str | None:
    """The line that most of these atoms' time comes from."""
    ops, own = facts.kernels.op[facts.atoms.index[atoms]], facts.atoms.own[atoms]
    spent: Counter[str] = Counter()
    for op in np.unique(ops[ops >= 0]).tolist():
        if place := line_of(facts, op):
            spent[place] += int(own[ops == op].sum())
    return spent.most_common(1)[0][0] if spent else None


def _seen_at(facts: StepFacts, row: int) -> str | None:
    return facts.called.at(row) if facts.called is not None else None


def _nearest_own(facts: StepFacts, row: int) -> Frame | None:
    for at in (row, *facts.links.ancestors(row)) if row >= 0 else ():
        for name in _frames_at(facts, at):
            frame = parse_frame(name)
            if frame is not None and frame.own:
                return frame
    return None


def _frames_at(facts: StepFacts, row: int) -> list[str]:
    """The frames a row carries: a Python row is one, an op of torch 1.x lists its stack."""
    if facts.timeline.events.kind[row] == Kind.PYTHON:
        return [facts.timeline.name_of(row)]
    extra = facts.timeline.extra_of(row)
    return extra.call_stack.split(";") if extra is not None and extra.call_stack else []


def sampled(facts: StepFacts, between_ops: bool = False) -> HostLine | None:
    """The line on which a sampler most often saw the host: one of the person's own, if there is one.

    `between_ops`: where no op was running, as far as the samples tell.
    """
    return next(iter(_sampled(facts, between_ops)), None)


def seen_at_ops(facts: StepFacts, needed: float) -> bool:
    """Whether a sampler saw the host mostly on lines that run ops, and on others less than this share."""
    lines = facts.rank.host_lines
    runs_ops = {line.place for line in lines if _RUNS_OPS.search(line.inside)}
    at_ops = sum(line.share for line in lines if line.place in runs_ops)
    return at_ops > MAJORITY_SHARE and sum(line.share for line in lines) - at_ops < needed


def pure_python(facts: StepFacts) -> list[HostLine]:
    """The sampler's lines of the person's own code with nothing of a library under them, most often first."""
    own = [line for line in facts.rank.host_lines if not line.inside and not LIBRARY.search(line.place)]
    return _by_share(own)


def loops_in_python(facts: Facts) -> bool:
    """Whether the host was often seen on such lines: Python itself works there, not a library. Beside a
    checkpoint in every step they are mostly its own: files renamed, states put together."""
    if saving_ms(facts) >= FAIR_PART * facts.spent_ms("host-work") > 0:
        return False
    return sum(line.share for line in pure_python(facts)) >= FAIR_PART


def routines_called(facts: StepFacts) -> list[HostLine]:
    """The sampler's lines of the person's own code that call a library's routine on arrays, or draw, in no
    loop, where the host was often seen on such; most often first."""
    lines = [line for line in facts.rank.host_lines if line.routine and not line.looped]
    return _by_share(lines) if sum(line.share for line in lines) >= FAIR_PART else []


def loops_call_routines(facts: StepFacts) -> bool:
    """Whether the host, where it was seen in loops, mostly stood in a library's routine on arrays: that works
    as long on all of them at once."""
    looped = [line for line in facts.rank.host_lines if line.looped]
    return sum(line.share for line in looped if line.routine) > MAJORITY_SHARE * sum(
        line.share for line in looped if line.routine or not line.inside
    )


class LongCall(msgspec.Struct, frozen=True):
    """A line that a step comes to once, and on which the host works without torch's ops: what it calls takes
    that long in one go."""

    place: str
    function: str
    ms: float  # a step


@found_once
def long_calls(facts: Facts) -> list[LongCall]:
    """The longest first, where they are most of the host's own work. A line's operators and a library's
    routines in C show as that line; so do torch's ops, and what those take by the trace is left out."""
    if facts.called is None:
        return []
    own = [line for line in facts.rank.host_lines if not _RUNS_OPS.search(line.inside)]
    seen = [line for line in _by_share(own) if line.once and not LIBRARY.search(line.place)]
    step, ops = ms(facts.step), _ops_at(facts)
    found = [LongCall(one.place, one.function, one.share * step - ops.get(one.place, 0.0)) for one in seen]
    whole = {one.place: one.share * step for one in seen}
    found = [one for one in found if one.ms > max(MAJORITY_SHARE * whole[one.place], MENTION_SHARE * step)]
    if sum(one.ms for one in found) < MAJORITY_SHARE * facts.spent_ms("host-work"):
        return []
    return sorted(found, key=lambda one: -one.ms)


def _ops_at(facts: Facts) -> dict[str, float]:
    """What the ops that each line called take of the host, in ms a step."""
    events, found = facts.timeline.events, dict[str, float]()
    for row in in_window(facts, heads_of(facts)).tolist():
        place = _seen_at(facts, row)
        if place is not None:
            found[place] = found.get(place, 0.0) + ms(float(events.duration[row])) / facts.steps.count
    return found


def saving_ms(facts: StepFacts) -> float:
    """Of the mean step: checkpoints being written, as far as a run timed that."""
    timed = facts.rank.step_times
    return (timed.saving_s or 0.0) * 1e3 if timed is not None else 0.0


def _sampled(facts: StepFacts, between_ops: bool) -> list[HostLine]:
    """The sampler's lines, the person's own first, then by how often they were seen; paths cut short."""
    lines = facts.rank.host_lines
    if between_ops:
        lines = tuple(line for line in lines if not _RUNS_OPS.search(line.inside)) or lines
    return _by_share(lines)


def _by_share(lines: Iterable[HostLine]) -> list[HostLine]:
    known: dict[tuple[str, str], tuple[str, bool | None, bool | None]] = {}
    shares: dict[tuple[str, str], float] = {}  # one line may have been seen in several functions it calls
    for line in lines:
        shares[line.place, line.function] = shares.get((line.place, line.function), 0.0) + line.share
        known[line.place, line.function] = (line.routine, line.looped, line.once)
    found = sorted(shares, key=lambda key: (bool(LIBRARY.search(key[0])), -shares[key]))
    return [
        HostLine("/".join(key[0].split("/")[-2:]), key[1], min(shares[key], 1.0), "", *known[key])
        for key in found
    ]


def sampled_evidence(facts: StepFacts, between_ops: bool = False) -> list[Evidence]:
    """What the sampler saw, where the run had one."""
    return _told(_sampled(facts, between_ops))


def lines_evidence(lines: Iterable[HostLine]) -> list[Evidence]:
    """The same, where there are no facts beside it."""
    return _told(_by_share(lines))


def _told(lines: list[HostLine]) -> list[Evidence]:
    return [
        Evidence(
            line=line.place,
            claim=Claim(
                "evidence/sampled", {"seen_share": line.share}, {"function": line.function}, [line.place]
            ),
        )
        for line in lines[:LINES_SHOWN]
    ]
