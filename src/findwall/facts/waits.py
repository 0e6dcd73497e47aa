"""What the device waits for: calls of the host, merged and named, with the idle time that is theirs.

Among them are the set-up of libraries and calls to the driver's allocator.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.facts.facts import Facts, matching, of_class, rows_of
from findwall.facts.op_shapes import shapes_text
from findwall.facts.user_lines import line_of
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import EVIDENCE_ROWS, Claim, Evidence, known, lines
from findwall.model.events import Kind
from findwall.model.intervals import F64, I64
from findwall.model.kinds import EVEN_SHARE
from findwall.model.machine import UNCACHED
from findwall.step.call_names import ALLOCATOR, COMPILE, in_window, outermost, sync_rows
from findwall.step.library_set_up import shapes
from findwall.step.recurring import FEWEST_REPEATS
from findwall.step.step_facts import StepFacts, found_once, rows_matching
from findwall.units import ms

GAPS_READ = 200  # the longest: each is looked up among all ops
# The op a person wrote, not the ones it calls.
_ASKED = re.compile(
    r"^aten::(item|is_nonzero|nonzero|masked_select|unique\w*|_unique2|bincount|to|cpu|tolist|equal|allclose"
    r"|repeat_interleave|argwhere|where|index|_local_scalar_dense)$"
)


ROUTINES = re.compile(r"^aten::(_?linalg_|svd|inverse|cholesky|lu_|qr|geqrf|ormqr|pinverse)")


class Wait(msgspec.Struct, frozen=True):
    """Host calls of one name, op and line, with the device's idle time that is theirs."""

    call: str
    op: str | None
    within: str | None  # the range a person or a library put around it
    line: str | None
    ms: float  # idle a step
    times: float  # a step

    @property
    def in_routine(self) -> bool:
        """Whether a routine of linear algebra waits there by itself."""
        return self.op is not None and ROUTINES.match(self.op) is not None

    def claim(self, what: str) -> Claim:
        names = known(op=self.op, call=self.call, range=self.within)
        return Claim(what, {"times": self.times, "ms": self.ms}, names, lines(self.line))


def rows_named(facts: StepFacts, pattern: re.Pattern[str], *kinds: Kind) -> I64:
    """Rows of the launching threads whose name matches, in host order, the outermost of nested ones."""
    events = facts.timeline.events
    rows = np.flatnonzero(events.is_kind(*kinds) & np.isin(events.thread, facts.host.threads))
    rows = rows_matching(facts.timeline, rows, pattern)
    rows = rows[np.lexsort((-events.end[rows], events.start[rows]))]
    reach = np.maximum.accumulate(events.end[rows]) if len(rows) else rows
    outer = np.concatenate([[True], events.end[rows[1:]] > reach[:-1]]) if len(rows) else np.empty(0, bool)
    kept: I64 = rows[outer]
    return kept


def routine_waits(facts: StepFacts) -> I64:
    """Calls with which a routine of linear algebra itself waits for the device, to see whether it is done:
    nobody can take them out of it."""
    rows = sync_rows(facts)
    names = [facts.timeline.name_of(row) for row in outermost(facts, rows).tolist()]
    inside: I64 = rows[np.array([ROUTINES.match(name) is not None for name in names], bool)]
    return inside


def waits(facts: Facts, cause: str, rows: I64) -> list[Wait]:
    """Idle time of a cause, given to its host rows: each gap to the last that began before its end."""
    rows = in_window(facts, rows)
    return merged(facts, rows, shared_idle(facts, cause, rows))


def shared_idle(facts: Facts, cause: str, rows: I64) -> F64:
    """Idle ns a step of a cause for each of its host rows, which are in host order."""
    positions, amounts = facts.idle_rows(cause)
    if len(positions) == 0 or len(rows) == 0:
        return np.zeros(len(rows))
    start = facts.timeline.events.start[rows]
    at = np.maximum(np.searchsorted(start, facts.queue.idle_until[positions], side="right") - 1, 0)
    return np.bincount(at, amounts, minlength=len(rows)).astype(np.float64)


def host_op(facts: StepFacts, start: int, end: int) -> int:
    """The op that ran on the host's own tensors for most of a gap: it launches nothing. -1: there is none."""
    events = facts.timeline.events
    rows = np.flatnonzero(events.is_kind(Kind.OP) & (events.start < end) & (events.end > start))
    rows = rows[np.isin(events.thread[rows], facts.host.threads)]
    calls = events.start[facts.links.launch[facts.queue.row[facts.queue.launched]]]
    launches = [((calls >= events.start[row]) & (calls < events.end[row])).any() for row in rows.tolist()]
    rows = rows[~np.array(launches, bool)]
    inside = np.minimum(events.end[rows], end) - np.maximum(events.start[rows], start)
    if len(rows) == 0 or inside.max() < MAJORITY_SHARE * (end - start):
        return -1
    return int(rows[int(np.argmax(inside))])


def is_in_host_ops(facts: Facts) -> bool:
    """Whether most of the host's own work is done inside single ops: a line was seen there as well, but no
    Python was at work on it."""
    positions, amounts = facts.idle_rows("host-work")
    start, end = facts.queue.idle_from[positions], facts.queue.idle_until[positions]
    longest = range(min(len(positions), GAPS_READ))
    inside = [at for at in longest if host_op(facts, int(start[at]), int(end[at])) >= 0]
    return float(amounts[inside].sum()) > MAJORITY_SHARE * float(amounts.sum())


def merged(facts: StepFacts, rows: I64, idle: F64) -> list[Wait]:
    """Calls of the same op in the same place are one entry, whichever runtime call each of them made."""
    groups: dict[tuple[str, str | None, str | None], list[tuple[int, float, int]]] = {}
    for row, amount in zip(rows.tolist(), idle.tolist(), strict=True):
        asked, within = _asked(facts, row)
        key = (facts.timeline.name_of(asked), within, line_of(facts, row))
        groups.setdefault(key, []).append((row, amount, asked))
    found = [_wait(facts, *key, members) for key, members in groups.items()]
    return sorted(found, key=lambda wait: (-wait.ms, -wait.times, wait.call, wait.op or ""))


def _wait(
    facts: StepFacts, what: str, within: str | None, line: str | None, members: list[tuple[int, float, int]]
) -> Wait:
    call = facts.timeline.name_of(max(members, key=lambda one: one[1])[0])
    idle = ms(sum(amount for _, amount, _ in members))
    times = len({asked for _, _, asked in members}) / facts.steps.count
    return Wait(call, None if what == call else what, within, line, idle, times)


def _asked(facts: StepFacts, row: int) -> tuple[int, str | None]:
    """The op that a person wrote around a call, or the call itself: several calls of one op are one wait. And
    the nearest range around it that says something."""
    ops: list[int] = []
    within = None
    for parent in facts.links.ancestors(row):
        kind, name = facts.timeline.events.kind[parent], facts.timeline.name_of(parent)
        if kind == Kind.OP:
            ops.append(parent)
        elif kind == Kind.ANNOTATION and within is None and not name.startswith("ProfilerStep"):
            within = name
    for pattern in (ROUTINES, _ASKED):  # a routine asks for itself: nobody wrote that
        wanted = [op for op in ops if pattern.match(facts.timeline.name_of(op))]
        if wanted:
            return wanted[-1], within
    return ops[0] if ops else row, within


def wait_evidence(found: list[Wait]) -> list[Evidence]:
    return [
        Evidence("", None, wait.op, wait.line, wait.ms, wait.claim("evidence/wait"))
        for wait in found[:EVIDENCE_ROWS]
        if wait.ms > 0
    ]


def syncs(facts: Facts) -> list[Wait]:
    """The same, merged and named, the costliest first."""
    return waits(facts, "host-sync", sync_rows(facts))


def common_sync(facts: StepFacts) -> str | None:
    """What most calls that wait for the device lie in."""
    names, counts = np.unique(
        facts.timeline.events.name[outermost(facts, sync_rows(facts))], return_counts=True
    )
    return facts.timeline.names[int(names[np.argmax(counts)])] if len(names) else None


def launch_idle_before(facts: Facts, atoms: I64) -> float:
    """Waiting for launches in front of these kernels, in ms a step."""
    positions, amounts = facts.idle_rows("launch-bound")
    return ms(float(amounts[np.isin(facts.queue.row[positions], rows_of(facts, atoms))].sum()))


def optimizer_launches(facts: Facts) -> float:
    """Waiting for the optimizer's own launches, in ms a step: nothing done to the model changes it."""
    waited = launch_idle_before(facts, np.flatnonzero(of_class(facts, "optimizer")))
    return min(waited, facts.recoverable_ms("launch-bound") or 0.0)


# -- set-up of libraries -------------------------------------------------------------------------------

RECOMPILATION = "recompilation"


class SetUp(msgspec.Struct, frozen=True):
    """One op that a library sets up inside the step."""

    op: str
    shape: str  # of the longest of them; empty where none was recorded
    shapes: int  # distinct ones that were set up in the steps looked at; 0 unknown
    times: float  # a step
    line: str | None
    ms: float  # idle a step; of trials also what the device tried
    tried: bool = False  # it runs many kernels to choose one


def compiling(facts: Facts) -> list[Wait]:
    """What the compiler's own ranges take, merged and named, the costliest first."""
    rows, idle = _rows(facts)
    own = ~np.isin(rows, _set_up_rows(facts))
    return merged(facts, rows[own], idle[own])


def set_ups(facts: Facts) -> list[SetUp]:
    """Ops that are set up in these steps, the costliest first."""
    rows, idle = _rows(facts)
    planned = np.isin(rows, _set_up_rows(facts))
    rows, idle = rows[planned], idle[planned]
    names = facts.timeline.events.name[rows]
    found = [_set_up(facts, rows[names == name], idle[names == name]) for name in np.unique(names).tolist()]
    return sorted(found, key=lambda one: (-one.ms, one.op))


def grows(facts: StepFacts) -> bool:
    """Whether what is set up is always one further than the last: the cache of a text that is being written.

    Each length is then set up once, and comes back with the next text: it is no part of later steps.
    """
    plans = facts.host.plans
    names = facts.timeline.events.name[plans.row]
    spent = {name: int((plans.end - plans.start)[names == name].sum()) for name in np.unique(names).tolist()}
    if not spent:
        return False
    rows = np.unique(plans.row[names == max(spent, key=lambda name: spent[name])])
    rows = rows[np.argsort(facts.timeline.events.start[rows], kind="stable")]
    sizes = [_sizes(facts, int(row)) for row in rows]
    if len(sizes) < FEWEST_REPEATS or len({len(one) for one in sizes}) > 1:
        return False
    further = np.diff(np.array(sizes, np.int64), axis=0)
    alike, counts = np.unique(further, axis=0, return_counts=True)
    usual = alike[np.argmax(counts)]
    is_even = counts.max() >= EVEN_SHARE * len(further)
    return bool(is_even and len(usual) and usual.min() >= 0 and usual.max() > 0)


def _sizes(facts: StepFacts, row: int) -> list[int]:
    """All dims of an op's arguments, one after the other."""
    inputs = facts.timeline.inputs_of(row)
    every = [] if inputs is None else inputs.dims
    return [size for dims in every if isinstance(dims, list) for size in dims if isinstance(size, int)]


def _set_up_rows(facts: StepFacts) -> I64:
    return np.union1d(facts.host.plans.row, facts.host.trials)


def _rows(facts: Facts) -> tuple[I64, F64]:
    """Compiler ranges and ops that are set up, in host order, with the idle time of each."""
    kinds = (Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)
    rows = np.unique(np.concatenate([rows_named(facts, COMPILE, *kinds), _set_up_rows(facts)]))
    rows = in_window(facts, rows[np.argsort(facts.timeline.events.start[rows], kind="stable")])
    return rows, shared_idle(facts, RECOMPILATION, rows)


def _set_up(facts: Facts, rows: I64, idle: F64) -> SetUp:
    tried = np.isin(rows, facts.host.trials)
    spent = idle + _on_device(facts, rows)
    longest = int(rows[int(np.argmax(spent))])
    known = shapes(facts.timeline, rows)
    return SetUp(
        op=facts.timeline.name_of(longest),
        shape=shapes_text(facts, longest),
        shapes=len(np.unique(known[known >= 0])),
        times=len(rows) / facts.steps.count,
        line=line_of(facts, longest),
        ms=ms(float(spent.sum())),
        tried=float(spent[tried].sum()) > MAJORITY_SHARE * float(spent.sum()),
    )


def _on_device(facts: Facts, rows: I64) -> F64:
    """Device time a step of the kernels that each op tries; none of an op that tries none."""
    atoms = facts.atoms.of(RECOMPILATION)
    op = facts.kernels.op[facts.atoms.index[atoms]]
    return np.array([facts.own[atoms[op == row]].sum() for row in rows.tolist()])


# -- the driver's allocator ----------------------------------------------------------------------------

_GIVES_BACK = re.compile("free|unmap|release", re.IGNORECASE)


def driver_calls(facts: StepFacts) -> dict[str, float]:
    """Calls to the driver's allocator, a step, most frequent first."""
    rows = in_window(facts, facts.timeline.rows(Kind.RUNTIME))
    rows = rows[matching(facts, rows, ALLOCATOR)]
    names, counts = np.unique(facts.timeline.events.name[rows], return_counts=True)
    found = {
        facts.timeline.names[int(name)]: count / facts.steps.count
        for name, count in zip(names.tolist(), counts.tolist(), strict=True)
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def given_back(calls: dict[str, float]) -> float:
    """How often a step gives memory back, of `driver_calls`."""
    return sum(count for name, count in calls.items() if _GIVES_BACK.search(name))


def cache_switched_off(facts: StepFacts) -> str | None:
    """What to do where nobody empties the cache because there is none: the environment switched it off."""
    found = [one for one in facts.run.environment.findings if one.id == UNCACHED]
    return found[0].fix if found else None


# -- autograd's anomaly mode: it looks behind its nodes, and no line of the job asks for that --------------

NODE, ADDS_UP = "autograd::engine::evaluate_function: ", "AccumulateGrad"
LOOKS = "aten::isnan"
ASKS = (LOOKS, "aten::_is_any_true", "aten::any", "aten::item", "aten::is_nonzero")


@found_once
def anomaly_checks(facts: StepFacts) -> I64:
    """Ops that autograd's engine itself calls behind its nodes; none where it looks for NaN behind few."""
    names = facts.timeline.names
    nodes = _called(
        facts, [at for at, name in enumerate(names) if name.startswith(NODE) and ADDS_UP not in name]
    )
    parents = facts.links.parent
    looks = _called(facts, [at for at, name in enumerate(names) if name == LOOKS])
    looks = looks[np.isin(parents[looks], nodes)]
    if len(np.unique(parents[looks])) <= MAJORITY_SHARE * len(nodes):
        return looks[:0]
    asked = _called(facts, [at for at, name in enumerate(names) if name in ASKS])
    return asked[np.isin(parents[asked], nodes)]


def _called(facts: StepFacts, names: list[int]) -> I64:
    events = facts.timeline.events
    return in_window(facts, np.flatnonzero(np.isin(events.name, names) & events.is_kind(Kind.OP)))
