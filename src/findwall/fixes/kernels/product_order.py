"""Multiply three matrices in the order that needs fewer multiplications.

What it does:
A product of three can be taken in two orders, and what they cost can differ by far: `(a @ b) @ c` makes all
of `a @ b` first, however narrow `c` is. einsum without opt_einsum goes from left to right, too.

    a @ (b @ c)                         # instead of (a @ b) @ c
    torch.linalg.multi_dot([a, b, c])   # picks the order by the sizes

When it does not help:
The product in the middle is needed by itself, or something stands between both products.

Risk:
Sums are added in another order: results differ in the last bits.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from findwall.facts.called_atoms import passes, reading
from findwall.facts.facts import causes_of
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
    rows_of,
    time_of,
    to_floor,
)
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import I64
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change, Scale
from findwall.step.call_names import in_window
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts

MOVES = ("slow-kernels", "at-the-roof", "fast-path-off", "memory-roof")
PRODUCTS = frozenset({"aten::mm", "aten::bmm"})
# They hand their tensor on as it is, or call a product that is looked at itself.
HANDS_ON = frozenset(
    f"aten::{name}"
    for name in (
        *("matmul", "einsum", "linear", "t", "transpose", "permute", "mT", "as_strided", "view"),
        *("reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "expand", "unsqueeze"),
        *("squeeze", "detach", "resolve_conj", "resolve_neg"),
    )
)


def plain(torch: Any, a: Any, b: Any, c: Any, from_left: bool) -> Any:
    """As it is written today."""
    return (a @ b) @ c if from_left else a @ (b @ c)


def cheaper(torch: Any, a: Any, b: Any, c: Any, from_left: bool) -> Any:
    """The other order."""
    return a @ (b @ c) if from_left else (a @ b) @ c


class _Three(msgspec.Struct, frozen=True):
    """Two products, one after the other, the second of which reads the first one's result."""

    first: int  # rows
    second: int
    sides: tuple[Tensor, Tensor, Tensor]  # in their order in the product
    from_left: bool
    forward: I64  # atoms
    backward: I64

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])

    @property
    def left(self) -> float:
        """Of today's multiplications what the other order needs."""
        a, b, c = self.sides
        from_left = a.elements * b.dims[-1] + math.prod((*a.dims[:-1], c.dims[-1])) * b.dims[-1]
        from_right = b.elements * c.dims[-1] + a.elements * c.dims[-1]
        return from_right / from_left if self.from_left else from_left / from_right


def use(facts: Facts) -> Outcome:
    found = _threes(facts)
    if not found:
        return no_use("product-order/none")
    found = [one for one in found if one.left < MAJORITY_SHARE]
    if not found:
        return no_use("product-order/as-good")
    if lacks_rates(facts):
        return no_ceilings(facts)
    every = np.concatenate([one.atoms for one in found])
    longest = max(found, key=lambda one: time_of(facts, one.atoms))
    claim = Claim(
        "product-order/other-way",
        {
            "spent_ms": time_of(facts, every),
            "from_left": longest.from_left,
            "left_share": longest.left,
            "sizes": "·".join(f"[{'×'.join(map(str, one.dims))}]" for one in longest.sides),
        },
        places=list(dict.fromkeys(line for one in found if (line := line_of(facts, one.first)) is not None)),
    )
    return Use(
        claim,
        to_floor(facts, every, np.zeros(len(every))),
        causes_of(facts, every, MOVES),
        # What it takes then is as much less as there is to multiply, where the products fill the device.
        likely=lambda made: sum((_likely(facts, one) for one in found), Change()),
        condition="product-read-by-nothing-else",
        rewrites=_rewrites(facts, found),
    )


def _likely(facts: WorkFacts, one: _Three) -> Change:
    rows = np.unique(rows_of(facts, one.atoms))
    return Change((Scale(rows, np.full(len(rows), one.left)),))


def _threes(facts: WorkFacts) -> list[_Three]:
    """Neighbours among what the job's own threads launch: two products, and nothing between them."""
    events, by = facts.timeline.events, passes(facts)
    called = np.unique(by.forward[by.forward >= 0])
    called = called[np.lexsort((events.start[called], events.thread[called]))]
    near = [
        (first, second, *sides)
        for first, second in pairwise(called.tolist())
        if (sides := _sides(facts, first, second)) is not None
    ]
    seconds = np.array([second for _, second, *_ in near], np.int64)
    found = []
    for first, second, tensors, from_left in near:
        if not _read_once(facts, first, seconds):
            continue
        found.append(_Three(first, second, tensors, from_left, *by.atoms_of([first, second])))
    return found


def _sides(facts: StepFacts, first: int, second: int) -> tuple[tuple[Tensor, Tensor, Tensor], bool] | None:
    """The three, and whether the left two are multiplied first; None where the second reads something else,
    or either side might be the first one's result."""
    if not {facts.timeline.name_of(first), facts.timeline.name_of(second)} <= PRODUCTS:
        return None
    one, other = (Arguments(facts.timeline.inputs_of(row)) for row in (first, second))
    a, b, left, right = one.tensor(0), one.tensor(1), other.tensor(0), other.tensor(1)
    if a is None or b is None or left is None or right is None:
        return None
    result = (*a.dims[:-1], b.dims[-1])
    if (left.dims == result) == (right.dims == result):
        return None
    return ((a, b, right), True) if left.dims == result else ((left, a, b), False)


def _read_once(facts: StepFacts, first: int, seconds: I64) -> bool:
    """Whether no other forward op of the job reads a tensor of the shape of the first one's result. The trace
    does not say which tensor an op reads: where another has that shape, it may be the one."""
    a, b = (Arguments(facts.timeline.inputs_of(first)).tensor(at) for at in (0, 1))
    assert a is not None and b is not None
    reads = in_window(facts, reading(facts, (*a.dims[:-1], b.dims[-1])))
    reads = reads[~facts.links.backward[reads] & ~np.isin(reads, seconds)]
    return all(facts.timeline.name_of(int(row)) in HANDS_ON for row in reads)


def _rewrites(facts: WorkFacts, found: list[_Three]) -> tuple[Rewrite, ...]:
    """One for each set of shapes."""
    alike: dict[tuple[object, ...], list[_Three]] = {}
    for one in found:
        key = (*((side.dims, side.dtype) for side in one.sides), one.from_left, len(one.backward) > 0)
        alike.setdefault(key, []).append(one)
    return tuple(
        Rewrite(
            "product-order",
            (
                *(
                    Draw(side.dims, side.dtype, has_gradient=len(mine[0].backward) > 0)
                    for side in mine[0].sides
                ),
                mine[0].from_left,
            ),
            np.unique(rows_of(facts, np.concatenate([one.atoms for one in mine]))),
            len(mine),
            len(mine[0].backward) > 0,
        )
        for mine in alike.values()
    )


FIX = Fix(MOVES, "safe", use, reorders=True, removes=True)
