"""Pad Fourier transforms to a length that is a product of 2, 3, 5 and 7.

What it does:
An FFT library has fast kernels for lengths that are products of small primes. A length with a larger prime
in it (521, 1022, 4099) goes through general kernels or Bluestein's way, which makes it a convolution of more
than twice the length: several times the work and several passes over memory. Such lengths often come about by
an odd amount of padding; pad a little further, to the next even length of small primes (521 to 540), and crop
afterwards:

    x = F.pad(x, (0, 540 - x.size(-1)))
    y = torch.fft.irfft(torch.fft.rfft(x) * w, n=540)[..., :n]

The backward pass transforms at the same length, so it gains as much.

When it does not help:
The lengths are products of 2, 3, 5 and 7 already, or the transforms run near the memory's speed at the length
they have. A transform whose every frequency is read as a result must keep its length.

Risk:
Another length is another transform: its frequencies lie elsewhere, and a signal that repeats is no longer
seen as one. For convolutions padded with zeros the results are the same but for rounding; where frequencies
are kept, cut off or learned, they change a little. Compare the losses, and do not mix checkpoints of both.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from findwall.facts.called_atoms import alike
from findwall.facts.likely_times import to_likely
from findwall.facts.op_shapes import tensors_of
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    lines,
    no_use,
    not_here,
    time_of,
    to_floor,
)
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.causes import cause_index
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change
from findwall.replay.curves import curves
from findwall.step.step_facts import StepFacts
from findwall.units import ms
from findwall.work.op_arguments import Arguments
from findwall.work.op_families.fft import OPS, Transform, is_smooth, smooth, transform
from findwall.work.work_facts import WorkFacts, moving_ns

LENGTHS_NAMED = 3


class _Calls(msgspec.Struct, frozen=True):
    """The transforms of one length, forward and backward."""

    op: int  # the longest of them
    asked: Transform
    atoms: I64


def use(facts: Facts) -> Outcome:
    atoms = _atoms(facts)
    if len(atoms) == 0:
        return no_use("smooth-fft/none")
    found = _calls(facts, atoms)
    if found is None:
        return cannot_tell("smooth-fft/no-shapes")
    odd = [one for one in found if not all(map(is_smooth, one.asked.lengths))]
    if not odd:
        return no_use("smooth-fft/smooth")
    slow = [one for one in odd if _is_slow(facts, one.atoms)]
    spent = sum(time_of(facts, one.atoms) for one in slow)
    if spent <= MENTION_SHARE * ms(facts.step):
        return not_here(facts, "smooth-fft/near", spent_ms=spent)
    sizes = {length: smooth(length) for one in slow for length in one.asked.lengths if not is_smooth(length)}
    longest = max(slow, key=lambda one: time_of(facts, one.atoms))
    return Use(
        Claim(
            "smooth-fft/pad",
            {"spent_ms": spent, "lengths": len(sizes)},
            places=lines(line_of(facts, longest.op)),
            parts=[
                Claim("smooth-fft/length", {"from": length, "to": to})
                for length, to in list(sizes.items())[:LENGTHS_NAMED]
            ],
        ),
        _best(facts, slow, set(sizes)),
        likely=lambda made: _likely(facts, slow),
        parameters={str(length): to for length, to in sizes.items()},
    )


def _is_slow(facts: Facts, atoms: I64) -> bool:
    """Whether transforms are mostly known to run far under what memory allows them."""
    slow = facts.atoms.cause[atoms] == cause_index("slow-kernels")
    return float(facts.own[atoms[slow]].sum()) > MAJORITY_SHARE * float(facts.own[atoms].sum())


def _best(facts: WorkFacts, slow: list[_Calls], lengths: set[int]) -> Change:
    """The transforms in one pass over memory, and at the floor what else is slow on tensors of such lengths:
    even ones may suit it too."""
    change = Change()
    for one in slow:
        change += to_floor(facts, one.atoms, facts.atoms.floor[one.atoms] / one.asked.passes)
    beside = np.setdiff1d(facts.atoms.of("slow-kernels"), np.concatenate([one.atoms for one in slow]))
    rows = facts.kernels.op[facts.atoms.index[beside]]
    has = {row: any(lengths & set(one.dims) for one in tensors_of(facts, row)) for row in set(rows.tolist())}
    return change + to_floor(facts, beside[np.array([has[row] for row in rows.tolist()], bool)])


def _atoms(facts: WorkFacts) -> I64:
    """Of the transforms' own kernels."""
    mine = np.array([_short(name) in OPS for name in facts.timeline.names] or [False], bool)
    op = facts.kernels.op[facts.atoms.index]
    return np.flatnonzero((op >= 0) & mine[facts.timeline.events.name[np.maximum(op, 0)]])


def _asked(facts: StepFacts, op: int) -> Transform | None:
    """What was asked of an op; None where that was not recorded."""
    try:
        return transform(_short(facts.timeline.name_of(op)), Arguments(facts.timeline.inputs_of(op)))
    except (IndexError, ValueError):
        return None


def _short(name: str) -> str:
    return name.removeprefix("aten::")


def _calls(facts: Facts, atoms: I64) -> list[_Calls] | None:
    """What is transformed, by op and shape; None where nobody recorded it."""
    found = []
    for mine in alike(facts, atoms):
        longest = facts.op_row(int(mine[np.argmax(facts.own[mine])]))
        asked = _asked(facts, longest)
        if asked is None:
            return None
        found.append(_Calls(longest, asked, mine))
    return found


def _likely(facts: Facts, odd: list[_Calls]) -> Change:
    """The longer transforms as fast as memory has them, the rest of the step as it is: what the padding adds
    to other ops is little, and at even sizes some of them run faster for it."""
    change = Change()
    for one in odd:
        least = one.asked.padded().bytes_beyond(float(facts.ceilings.l2_bytes or 0))
        floor = moving_ns(facts, least)
        if floor > 0:
            call = float(curves().likely_ns("pointwise", np.array([floor]))[0])
            change += to_likely(facts, one.atoms, _shares(facts, one.atoms, call))
    return change


def _shares(facts: WorkFacts, atoms: I64, call_ns: float) -> F64:
    """Of each kernel of calls that take so long: its share of its call, and no longer than today."""
    index = facts.atoms.index[atoms]
    today = facts.kernels.duration[index].astype(np.float64)
    _, call = np.unique(facts.kernels.op[index], return_inverse=True)
    each = np.bincount(call.reshape(-1), today)[call.reshape(-1)]
    return np.minimum(today, today / np.maximum(each, 1.0) * call_ns)


# -- the same convolution at two lengths -------------------------------------------------------------------


def plain(torch: Any, x: Any, w: Any) -> Any:
    """A convolution in the frequencies of exactly as many places as it needs."""
    return _convolved(torch, x, w, x.size(-1) + w.size(-1) - 1)


def cheaper(torch: Any, x: Any, w: Any) -> Any:
    """The same with zeros behind it, to the next length of small primes."""
    needed = x.size(-1) + w.size(-1) - 1
    return _convolved(torch, x, w, smooth(needed))[..., :needed]


def _convolved(torch: Any, x: Any, w: Any, n: int) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(w, n=n), n=n)


FIX = Fix(("slow-kernels",), "needs-review", use)
