"""Apply a fixed filter one dimension after the other instead of over its whole window at once.

What it does:
A box or a Gaussian is a product of one filter for each dimension. `F.conv3d(x, torch.ones(1, 1, 9, 9, 9))`
multiplies 729 numbers for each that it gives; three passes of 9 give the same from 27, and read and write
the tensor three times. Libraries have no fast kernels for convolutions of one channel either. A box is an
average:

    for k in ((9, 1, 1), (1, 9, 1), (1, 1, 9)):     # a box: sums over windows, as local correlation has them
        x = F.avg_pool3d(x, k, stride=1, padding=[n // 2 for n in k]) * 9

    x = F.conv2d(x, g.view(1, 1, -1, 1), padding=(n // 2, 0))      # a Gaussian g of n taps: blurs, SSIM
    x = F.conv2d(x, g.view(1, 1, 1, -1), padding=(0, n // 2))

Several tensors that go through the same filter go through it together (`torch.cat`). With channels each
filter is expanded to `[C, 1, n, 1]` and `groups=C`.

A CPU has slow kernels for lines of taps, most of all backward, and fast ones for products of matrices. There
a line of taps is a banded matrix as large as the image's side, which is made once:

    lag = torch.arange(side) - torch.arange(side)[:, None]
    band = torch.where(lag.abs() <= n // 2, g[(lag + n // 2).clamp(0, n - 1)], 0.0)
    x = band @ x @ band.T                                          # a volume: once more, along its depth

Most of what is multiplied is zero, and it is still faster: of eleven by eleven taps over images of 128 by 128
and one channel the forward pass took a quarter, the backward pass a thirtieth of the time.

When it does not help:
The weight is learned, or it is no product of one filter for each dimension (a Laplacian, a disc). Windows are
small: three by three is 9 products against 6. On a CPU the image is huge beside its window, or there are so
many channels that today's kernel runs well.

Risk:
Sums add up in another order: results differ in the last bits. A sum over a window that is most of an image
loses digits either way.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from findwall.facts.best_changes import CACHE_RATIO, as_one_pass
from findwall.facts.facts import causes_of, kernels_ns
from findwall.facts.likely_times import in_few_kernels
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    lacks_rates,
    no_ceilings,
    no_use,
    on_cores,
    rows_of,
    step_ms,
    time_of,
)
from findwall.model.catalogue import MENTION_SHARE
from findwall.model.intervals import I64
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change
from findwall.replay.curves import curves
from findwall.units import NS_PER_S
from findwall.work.op_families.convolution import Filter, filter_of
from findwall.work.work_facts import WorkFacts

MOVES = ("slow-kernels", "fast-path-off", "at-the-roof", "memory-roof")
# Of the ceiling of cores: what products with a banded matrix reach at least. With torch 2.13 on two cores of
# a Xeon 0.4 to 0.8, of images of 64 to 512 and volumes of 24 to 64 a side.
BANDED_REACHES = 0.4
COLOURS = 4  # channels of an image: where no gradient passes, a window of more may have been learned


def plain(torch: Any, x: Any, taps: list[Any]) -> Any:
    """As it is written today: over the whole window, each channel by itself."""
    window = taps[0]
    for one in taps[1:]:
        window = window.unsqueeze(-1) * one
    return _convolved(torch, x, window)


def cheaper(torch: Any, x: Any, taps: list[Any]) -> Any:
    """One dimension after the other, as the device is good at it."""
    return (banded if x.device.type == "cpu" else apart)(torch, x, taps)


def apart(torch: Any, x: Any, taps: list[Any]) -> Any:
    """As convolutions."""
    for at, one in enumerate(taps):
        x = _convolved(torch, x, one.view(*(-1 if at == dim else 1 for dim in range(len(taps)))))
    return x


def banded(torch: Any, x: Any, taps: list[Any]) -> Any:
    """As products with a matrix that has the taps on its diagonals."""
    for at, one in enumerate(taps, x.dim() - len(taps)):
        side, reach = x.shape[at], len(one) // 2
        lag = torch.arange(side) - torch.arange(side)[:, None]
        band = torch.where(lag.abs() <= reach, one[(lag + reach).clamp(0, len(one) - 1)], 0.0)
        last = at == x.dim() - 1
        x = x @ band.T if last else (band @ x.flatten(at + 1)).view(x.shape)
    return x


def _convolved(torch: Any, x: Any, window: Any) -> Any:
    convolve = (torch.nn.functional.conv2d, torch.nn.functional.conv3d)[window.dim() - 2]
    weight = window.expand(x.shape[1], 1, *window.shape)
    return convolve(x, weight, padding=[n // 2 for n in window.shape], groups=x.shape[1])


class _Calls(msgspec.Struct, frozen=True):
    """Calls of one filter on tensors of one shape, forward or backward."""

    op: int  # the first of them
    given: Filter
    atoms: I64
    rows: tuple[int, ...]  # the ops

    @property
    def taps(self) -> int:
        return sum(self.given.window)

    @property
    def left(self) -> float:
        """Of today's products."""
        return self.taps / math.prod(self.given.window)


def use(facts: Facts) -> Outcome:
    found = _fixed(_calls(facts))
    if not found:
        return no_use("separable-filter/none")
    if lacks_rates(facts):
        return no_ceilings(facts)
    found = [one for mine in _by_given(found).values() for one in mine if _is_faster(facts, one, mine)]
    every = np.concatenate([one.atoms for one in found]) if found else np.zeros(0, np.int64)
    spent = time_of(facts, every)
    if not found and on_cores(facts) and not facts.ceilings.known:
        return no_ceilings(facts)
    if spent <= MENTION_SHARE * step_ms(facts):
        return no_use("separable-filter/little", spent_ms=spent)
    longest = max(found, key=lambda one: time_of(facts, one.atoms))
    claim = Claim(
        "separable-filter/banded" if on_cores(facts) else "separable-filter/apart",
        {
            "spent_ms": spent,
            "window": longest.given.window[0],
            "dims": len(longest.given.window),
            "taps": longest.taps,
            "products": math.prod(longest.given.window),
            "sides": "×".join(map(str, longest.given.window)),
            "reached_share": _reached(facts, [longest]) if on_cores(facts) else None,
        },
        places=_lines(facts, found),
    )
    return Use(
        claim,
        _best(facts, found),
        causes_of(facts, every, MOVES),
        likely=lambda made: _change(facts, found, as_today=False),
        # Kernels for one channel may be no better for a line of taps than for a window.
        may=(lambda made: _change(facts, found, as_today=True),),
        condition="filter-is-separable",
        rewrites=_rewrites(facts, found),
    )


def _lines(facts: Facts, found: list[_Calls]) -> list[str]:
    by_time = sorted(found, key=lambda one: -time_of(facts, one.atoms))
    return list(dict.fromkeys(line for one in by_time if (line := line_of(facts, one.op)) is not None))


def _calls(facts: WorkFacts) -> list[_Calls]:
    """Convolutions of each channel by itself, by op and by what they are given."""
    op = facts.kernels.op[facts.atoms.index]
    events = facts.timeline.events
    kinds = len(facts.timeline.details.inputs) + 1
    key = np.where(op >= 0, events.name[op].astype(np.int64) * kinds + events.inputs[op] + 1, -1)
    found = []
    for group in np.unique(key[key >= 0]).tolist():
        atoms = np.flatnonzero(key == group)
        rows = np.unique(op[atoms])
        given = filter_of(facts.timeline.name_of(int(rows[0])), facts.timeline.inputs_of(int(rows[0])))
        if given is not None:
            found.append(_Calls(int(rows[0]), given, atoms, tuple(rows.tolist())))
    return found


def _fixed(calls: list[_Calls]) -> list[_Calls]:
    """Those of weights that get no gradient where what is filtered gets one. Where nothing does, whether a
    weight was learned before is not known: it is taken for a filter where it is one for an image."""
    learned = {one.given.weight for one in calls if one.given.learns}
    passed = {one.given.weight for one in calls if one.given.backward}
    return [
        one
        for one in calls
        if one.given.weight not in learned and (one.given.weight in passed or one.given.weight[0] <= COLOURS)
    ]


def _by_given(found: list[_Calls]) -> dict[tuple[object, ...], list[_Calls]]:
    """Those of one filter on tensors of one shape, forward and backward."""
    by: dict[tuple[object, ...], list[_Calls]] = {}
    for one in found:
        by.setdefault((one.given.weight, one.given.x.dims, one.given.x.dtype), []).append(one)
    return by


# -- what it takes ---------------------------------------------------------------------------------------


def _is_faster(facts: WorkFacts, one: _Calls, mine: list[_Calls]) -> bool:
    """On cores one form is taken for all calls of a filter, forward and backward."""
    if on_cores(facts):
        return _reached(facts, mine) < BANDED_REACHES * _banded_ratio(one.given)
    return _passes_ns(facts, one) * len(one.rows) < kernels_ns(facts, one.atoms)


def _reached(facts: WorkFacts, mine: list[_Calls]) -> float:
    """Of the ceiling; all of it where that is not known, as it may be so much."""
    at = facts.atoms.index[np.concatenate([one.atoms for one in mine])]
    rate = facts.ceilings.flops.get(mine[0].given.x.math or "")
    done = float(facts.kernels.flops[at].sum()) / float(facts.kernels.duration[at].sum()) * NS_PER_S
    return 1.0 if not rate or np.isnan(done) else min(done / rate, 1.0)


def _banded_ratio(given: Filter) -> float:
    """Today's products to those of banded matrices, which are as large as the sides."""
    return math.prod(given.window) / sum(given.x.dims[2:])


def _passes_ns(facts: WorkFacts, one: _Calls) -> float:
    """ns of a call, one dimension after the other: every pass reads the tensor and writes one, and reads the
    neighbours of each number from the cache."""
    rate = (facts.ceilings.bandwidth or np.inf) / NS_PER_S
    moved, read = _moved(one), one.given.x.nbytes
    floors = [max(moved, (moved + (taps - 1) * read) / CACHE_RATIO) / rate for taps in one.given.window]
    return float(curves().likely_ns("pointwise", np.maximum(floors, 1.0)).sum())


def _moved(one: _Calls) -> float:
    """Bytes that one pass reads and writes; a backward pass does it the other way round."""
    return one.given.x.nbytes + one.given.result_bytes


def _best(facts: WorkFacts, found: list[_Calls]) -> Change:
    """What is filtered read once, and the result written once."""
    return sum((as_one_pass(facts, one.atoms, _moved(one) * len(one.rows)) for one in found), Change())


def _change(facts: WorkFacts, found: list[_Calls], as_today: bool) -> Change:
    """A kernel for each dimension, where as many run today; `as_today`: as long for each product as today."""
    parts = []
    for one in found:
        each = _passes_ns(facts, one)
        op = facts.kernels.op[facts.atoms.index[one.atoms]]
        for call in one.rows:
            mine = one.atoms[op == call]
            today = kernels_ns(facts, mine)
            then = max(each, today * one.left) if as_today else each
            parts.append((rows_of(facts, mine), len(one.given.window), min(then, today)))
    return in_few_kernels(parts)


# -- what may be probed ------------------------------------------------------------------------------------


def _rewrites(facts: WorkFacts, found: list[_Calls]) -> tuple[Rewrite, ...]:
    """Calls with a backward pass and calls without, for each filter and shape."""
    return tuple(rewrite for mine in _by_given(found).values() for rewrite in _of_shape(facts, mine))


def _of_shape(facts: WorkFacts, mine: list[_Calls]) -> list[Rewrite]:
    back = [row for one in mine if one.given.backward for row in one.rows]
    ahead = [row for one in mine if not one.given.backward for row in one.rows]
    followed = set(facts.links.forward[np.array(back, np.int64)].tolist()) if back else set()
    around = {row: {row, *facts.links.ancestors(row)} for row in ahead}
    passed = [row for row in ahead if around[row] & followed]
    alone = [row for row in ahead if not around[row] & followed]
    given, op = mine[0].given, facts.kernels.op[facts.atoms.index]
    found = []
    for rows, count, backward in (([*passed, *back], len(passed), True), (alone, len(alone), False)):
        if count:
            atoms = np.flatnonzero(np.isin(op, rows))
            x = Draw(given.x.dims, given.x.dtype, has_gradient=backward)
            drawn = (x, [Draw((taps,), given.x.dtype) for taps in given.window])
            kernels = np.unique(rows_of(facts, atoms))
            found.append(Rewrite("separable-filter", drawn, kernels, count, backward))
    return found


FIX = Fix(MOVES, "safe", use, reorders=True, removes=True)
