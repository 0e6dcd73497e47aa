"""Set-up of a library inside the step: which op, for how many shapes, and the idle time that is its."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.places import line_of
from findwall.attribute.shapes import shapes_text
from findwall.attribute.waits import Wait, in_window, merged, rows_named, shared_idle
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I64
from findwall.model.kinds import EVEN_SHARE
from findwall.structure.host import COMPILE
from findwall.structure.library_set_up import shapes
from findwall.units import ms

RECOMPILATION = "recompilation"
FEWEST_GROWING = 3  # lengths: two distances that are the same
MOST_TOKENS_A_STEP = 16  # by which a text that is being written grows: lengths further apart are drawn


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


def grows(facts: Facts) -> bool:
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
    if len(sizes) < FEWEST_GROWING or len({len(one) for one in sizes}) > 1:
        return False
    further = np.diff(np.array(sizes, np.int64), axis=0)
    alike, counts = np.unique(further, axis=0, return_counts=True)
    usual = alike[np.argmax(counts)]
    is_even = counts.max() >= EVEN_SHARE * len(further)
    return bool(is_even and len(usual) and usual.min() >= 0 and 0 < usual.max() <= MOST_TOKENS_A_STEP)


def _sizes(facts: Facts, row: int) -> list[int]:
    """All dims of an op's arguments, one after the other."""
    inputs = facts.timeline.inputs_of(row)
    every = [] if inputs is None else inputs.dims
    return [size for dims in every if isinstance(dims, list) for size in dims if isinstance(size, int)]


def _set_up_rows(facts: Facts) -> I64:
    return np.union1d(facts.host.plans.row, facts.host.trials)


def _rows(facts: Facts) -> tuple[I64, F64]:
    """Compiler ranges and ops that are set up, in host order, with the idle time of each."""
    kinds = (Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)
    rows = np.unique(np.concatenate([rows_named(facts, COMPILE, *kinds), _set_up_rows(facts)]))
    rows = in_window(facts, rows[np.argsort(facts.timeline.events.start[rows], kind="stable")])
    return rows, shared_idle(facts, RECOMPILATION, rows)


def _set_up(facts: Facts, rows: I64, idle: F64) -> SetUp:
    tried = np.isin(rows, facts.host.trials)
    spent = idle + _on_device(facts, rows, tried)
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


def _on_device(facts: Facts, rows: I64, tried: Bool) -> F64:
    """Device time a step of the kernels that each op tries."""
    atoms = facts.atoms.of(RECOMPILATION)
    op = facts.kernels.op[facts.atoms.index[atoms]]
    found = np.zeros(len(rows))
    for at in np.flatnonzero(tried).tolist():
        found[at] = facts.own[atoms[op == rows[at]]].sum()
    return found
