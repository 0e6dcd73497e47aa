"""Scan along the innermost dimension, and before a factor makes the tensor larger.

What it does:
`torch.cumsum(x, dim=1)` of `[batch, time, channels]` gives each column to one thread, which goes down it
alone, one number after the other, and waits for memory at each. Along the innermost dimension many threads
share a row:

    x.transpose(1, -1).contiguous().cumsum(-1).transpose(1, -1)     # cumprod, logcumsumexp, cummax, too

On a CPU each column is one core's, and its numbers lie in cache lines of their own: where they are many, each
comes from far away. Best is a tensor that is made with that dimension last: then nothing is turned.

A sum is linear: a factor that does not change along it can be multiplied afterwards. Then the scan goes over
the smaller tensor, and the larger one is written once less:

    torch.cumsum(f, dim=1) * ratios         # instead of torch.cumsum(f * ratios, dim=1)

The backward pass is a scan from the other end, and gains as much.

When it does not help:
The dimension is the innermost already, or there are so many columns that they fill the device. On a CPU a
short column stays in the cache from one to the next, and logcumsumexp takes what its exponentials take.

Risk:
Sums add up in another order: results differ in the last bits.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import numpy as np

from findwall.facts.called_atoms import alike
from findwall.facts.facts import kernels_ns
from findwall.facts.likely_times import pass_ns
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    as_on_cores,
    lines,
    matching,
    no_ceilings,
    no_use,
    on_cores,
    rows_of,
    step_ms,
    time_of,
    to_floor,
)
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.events import Bool
from findwall.model.intervals import I64
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change, Replace
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts
from findwall.work.fusion import SCAN
from findwall.work.op_arguments import SECTOR, Arguments, Tensor, broadcast
from findwall.work.work_facts import START_NS, WorkFacts, moving_ns, ops_named

MOVES = ("slow-kernels",)
DOWN = re.compile(r"scan_outer_dim")  # torch's kernel with a thread for each column
TIMES = frozenset({"aten::mul", "aten::div"})
SUM = "aten::cumsum"
PASSES = 3  # turned round, scanned, turned back
SLOWEST = 0.25  # of the memory's speed: what such passes reach at least. Chosen by hand, not calibrated.
PLACE_BYTES = 8  # of the place of each extreme
# On cores: half of the smallest first cache, the other half being the result's, and what memory hands a core.
HALF_CACHE_BYTES, LINE_BYTES = 16 << 10, 64
# There they take what their exponentials and logarithms do, along any dimension.
_IN_ANY_ORDER = re.compile(r"logcumsumexp")


def plain(torch: Any, x: Any, dim: int, scan: str) -> Any:
    """As it is written today."""
    return _scanned(torch, x, dim, scan)


def cheaper(torch: Any, x: Any, dim: int, scan: str) -> Any:
    """The same along the innermost dimension."""
    return _scanned(torch, x.transpose(dim, -1).contiguous(), -1, scan).transpose(dim, -1)


def before(torch: Any, small: Any, factor: Any, dim: int) -> Any:
    """A sum of products with a factor that does not change along it."""
    return torch.cumsum(small, dim) * factor


def _scanned(torch: Any, x: Any, dim: int, scan: str) -> Any:
    found = getattr(torch, scan)(x, dim)
    return found[0] if isinstance(found, tuple) else found  # the extremes come with their places


class _Scan(msgspec.Struct, frozen=True):
    """Scans of one kind down the columns of tensors of one shape."""

    op: int  # the first of them
    x: Tensor
    dim: int
    atoms: I64
    calls: int
    small: Tensor | None  # what is multiplied to give such a tensor, and has all that changes along it

    @property
    def columns(self) -> int:
        return self.x.elements // max(self.x.dims[self.dim], 1)

    @property
    def strides(self) -> tuple[int, ...]:
        """As recorded, else of numbers that lie in their order."""
        dims = self.x.dims
        return self.x.strides or tuple(math.prod(dims[at + 1 :]) for at in range(len(dims)))

    @property
    def is_down(self) -> bool:
        """Whether other numbers lie between those that it goes along, and turning it would mend that."""
        strides = self.strides
        others = [stride for at, stride in enumerate(strides) if at != self.dim and self.x.dims[at] > 1]
        return self.dim < len(strides) - 1 and min(others, default=strides[self.dim]) < strides[self.dim]

    @property
    def leaves_cache(self) -> bool:
        """Whether a column, read and written, is more than a core keeps near until the one beside it."""
        apart = min(self.strides[self.dim] * self.x.size, LINE_BYTES)
        return apart * self.x.dims[self.dim] > HALF_CACHE_BYTES


def use(facts: Facts) -> Outcome:
    found = _scans(facts, np.flatnonzero(_down(facts)))
    if not found:
        return no_use("scan-innermost/none")
    if not facts.ceilings.bandwidth:
        return no_ceilings(facts)
    found = _faster(facts, found)
    atoms = np.concatenate([one.atoms for one in found]) if found else np.zeros(0, np.int64)
    spent = time_of(facts, atoms)
    if spent <= MENTION_SHARE * step_ms(facts):
        return no_use("scan-innermost/near", spent_ms=spent)
    longest = max(found, key=lambda one: time_of(facts, one.atoms))
    return Use(
        _claim(facts, longest, spent),
        sum((_best(facts, one) for one in found), Change()),
        likely=lambda made: sum((_to(facts, one, _then_ns(facts, one)) for one in found), Change()),
        may=(lambda made: sum((_to(facts, one, _slowest_ns(facts, one)) for one in found), Change()),),
        condition="scanned-is-that-product" if longest.small is not None else "",
        rewrites=tuple(_rewrite(facts, one) for one in found if one.small is None),
    )


def _down(facts: WorkFacts) -> Bool:
    """Which atoms may be of scans down columns: a GPU's kernels say so by their name, on cores what the op is
    given has to."""
    ops = facts.kernels.op[facts.atoms.index]
    scans = ops_named(facts.timeline, ops, SCAN)
    if on_cores(facts):
        return scans & ~ops_named(facts.timeline, ops, _IN_ANY_ORDER)
    return scans & matching(facts, rows_of(facts, np.arange(len(ops))), DOWN)


def _claim(facts: Facts, longest: _Scan, spent: float) -> Claim:
    small = longest.small
    return Claim(
        "scan-innermost/turned" if small is None else "scan-innermost/before",
        {
            "spent_ms": spent,
            "dim": longest.dim,
            "columns": longest.columns,
            "length": longest.x.dims[longest.dim],
            "numbers": longest.x.elements,
            "small": small.elements if small is not None else None,
            **as_on_cores(facts),
        },
        {"op": f"aten::{_called(facts, longest)}"},
        lines(line_of(facts, longest.op)),
    )


def _scans(facts: WorkFacts, atoms: I64) -> list[_Scan]:
    """By op and by what they are given."""
    found = []
    for mine in alike(facts, atoms):
        rows = np.unique(facts.kernels.op[facts.atoms.index[mine]])
        given = _given(facts, int(rows[0]))
        if given is not None:
            found.append(_Scan(int(rows[0]), *given, mine, len(rows), _factor(facts, rows, *given)))
    return [one for one in found if one.is_down] if on_cores(facts) else found


def _given(facts: StepFacts, row: int) -> tuple[Tensor, int] | None:
    """What is scanned, and along which dimension; None where nobody recorded that."""
    given = Arguments(facts.timeline.inputs_of(row))
    # _cummax_helper(x, values, places, dim)
    x, dim = given.tensor(0), given.number(3 if facts.timeline.name_of(row).endswith("_helper") else 1)
    if x is None or dim is None or not -len(x.dims) <= dim < len(x.dims):
        return None
    return x, int(dim) % len(x.dims)


def _factor(facts: StepFacts, rows: I64, x: Tensor, dim: int) -> Tensor | None:
    """Where the op in front of every such sum makes a tensor of its shape from a smaller one, by a factor
    that does not change along it: the smaller one."""
    heads = heads_of(facts)
    place = {int(row): number for number, row in enumerate(heads.tolist())}
    of = head_of(facts, heads)
    found = []
    for row in rows.tolist():
        here = place.get(int(of[row]), 0)
        if facts.timeline.name_of(row) != SUM or facts.links.backward[row] or here == 0:
            return None
        found.append(_smaller(facts, int(heads[here - 1]), x, dim))
    return found[0] if found and all(one is not None for one in found) else None


def _smaller(facts: StepFacts, row: int, x: Tensor, dim: int) -> Tensor | None:
    given = Arguments(facts.timeline.inputs_of(row))
    left, right, name = given.tensor(0), given.tensor(1), facts.timeline.name_of(row)
    if name not in TIMES or left is None or right is None or broadcast([left.dims, right.dims]) != x.dims:
        return None
    behind = dim - len(x.dims)  # from the right, as shapes are broadcast
    for one, other in [(left, right)] + ([(right, left)] if name == "aten::mul" else []):
        fixed = len(other.dims) < -behind or other.dims[behind] == 1
        whole = len(one.dims) >= -behind and one.dims[behind] == x.dims[dim]
        if fixed and whole and one.elements < MAJORITY_SHARE * x.elements:
            return one
    return None


# -- what it takes -----------------------------------------------------------------------------------------


def _faster(facts: WorkFacts, found: list[_Scan]) -> list[_Scan]:
    """Those that gain by it. On cores all that leave the cache may, once one of them surely does."""
    if not on_cores(facts):
        return [one for one in found if _then_ns(facts, one) * one.calls < kernels_ns(facts, one.atoms)]
    may = [one for one in found if one.leaves_cache or one.small is not None]
    return may if any(_surely_faster(facts, one) for one in may) else []


def _surely_faster(facts: WorkFacts, one: _Scan) -> bool:
    """On cores, of which nobody knows how fast they turn tensors: of fewer numbers, or when today's columns
    take longer than all the passes at their slowest."""
    if one.small is not None:
        return True
    places = PLACE_BYTES * one.x.elements if facts.timeline.name_of(one.op).endswith("_helper") else 0
    slow = PASSES * START_NS + moving_ns(facts, PASSES * _moved(one) + places) / SLOWEST
    return slow * one.calls < kernels_ns(facts, one.atoms)


def _moved(one: _Scan) -> float:
    """Bytes of one pass over what is scanned then."""
    x = one.small or one.x
    return 2 * x.elements * x.size


def _then_ns(facts: WorkFacts, one: _Scan) -> float:
    """A call's passes: the tensor turned round, scanned, and turned back."""
    return PASSES * pass_ns(facts, _moved(one))


def _slowest_ns(facts: WorkFacts, one: _Scan) -> float:
    """Passes at their slowest. Where the smaller tensor is scanned down its columns still, neighbours come
    from memory together, and only the first of them is waited for."""
    today = kernels_ns(facts, one.atoms) / one.calls
    slow = PASSES * (moving_ns(facts, _moved(one)) / SLOWEST + START_NS)
    if one.small is not None:
        slow = max(slow, today * one.small.size / SECTOR)
    return min(max(slow, _then_ns(facts, one)), today)


def _best(facts: WorkFacts, one: _Scan) -> Change:
    """Read once and written once."""
    own = facts.atoms.own[one.atoms]
    least = moving_ns(facts, _moved(one)) * one.calls / max(float(own.sum()), 1.0)
    return to_floor(facts, one.atoms, own * min(least, 1.0))


def _to(facts: WorkFacts, one: _Scan, call_ns: float) -> Change:
    """Calls that take so long each; a few kernels more to launch change little."""
    rows = np.unique(rows_of(facts, one.atoms))
    return Change((Replace(rows, np.full(len(rows), call_ns * one.calls / max(len(rows), 1))),))


def _called(facts: WorkFacts, one: _Scan) -> str:
    """As a person calls it: cummax for aten::_cummax_helper."""
    name = facts.timeline.name_of(one.op).removeprefix("aten::").removeprefix("_")
    return name.removesuffix("_helper").removesuffix("_")


def _rewrite(facts: WorkFacts, one: _Scan) -> Rewrite:
    given = (Draw(one.x.dims, one.x.dtype), one.dim, _called(facts, one))
    return Rewrite("scan-innermost", given, np.unique(rows_of(facts, one.atoms)), one.calls)


FIX = Fix(MOVES, "safe", use, reorders=True, removes=True)
