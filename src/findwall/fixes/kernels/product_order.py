"""Multiply three matrices or more in the order that needs least.

What it does:
A product of three can be taken in two orders, and what they cost can differ by far: `(a @ b) @ c` makes all
of `a @ b` first, however narrow `c` is. einsum without opt_einsum goes from left to right, too. What stands
between both products may stay, if it multiplies or divides by a number or by a factor for each row or column:
it commutes with them.

    a @ (b @ c)                         # instead of (a @ b) @ c
    q @ (k.mT @ v / n)                  # instead of (q @ k.mT / n) @ v: attention without a softmax
    torch.linalg.multi_dot([a, b, c])   # picks the order by the sizes

When it does not help:
The product in the middle is needed by itself, or something stands between both products that does not commute
with them: a softmax, a mask, a sum with something else.

Risk:
Sums are added in another order: results differ in the last bits.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.dataflow.product_orders import Cost, Labels, best, cost_of, factors, made, parts, size, spelled
from findwall.facts.called_atoms import passes, reading
from findwall.facts.facts import causes_of
from findwall.facts.likely_times import in_few_kernels
from findwall.facts.user_lines import line_of
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    lacks_rates,
    lines,
    no_ceilings,
    no_use,
    rows_of,
    time_of,
    to_floor,
)
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, NEARLY_ALL
from findwall.model.dataflow import ProductStep, ProductTree
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change
from findwall.replay.curves import curves
from findwall.step.call_names import in_window
from findwall.step.step_facts import StepFacts
from findwall.units import NS_PER_S
from findwall.work.op_arguments import Arguments, item_size
from findwall.work.work_facts import WorkFacts, moving_ns

MOVES = ("slow-kernels", "at-the-roof", "fast-path-off", "memory-roof", "unfused-pointwise")
PRODUCTS = frozenset({"aten::mm", "aten::bmm"})
FACTORS = frozenset({"aten::mul", "aten::div", "aten::mul_", "aten::div_"})
# They hand their tensor on as it is, or call a product that is looked at itself.
HANDS_ON = frozenset(
    f"aten::{name}"
    for name in (
        *("matmul", "einsum", "linear", "t", "transpose", "permute", "mT", "as_strided", "view"),
        *("reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "expand", "unsqueeze"),
        *("squeeze", "detach", "resolve_conj", "resolve_neg"),
    )
)
# Of the results of a product in a batch, the side of what one multiprocessor adds up: where there are fewer
# such pieces than multiprocessors, the others have nothing to do. A single product is cut along its sums too.
PIECE = 64


def plain(torch: Any, operands: Any, today: str, other: str) -> Any:
    """As it is written today: one product after the other, "0,1:ab,bc->ac;3,2:ac,cd->ad"."""
    results = list(operands)
    for step in today.split(";"):
        which, _, equation = step.partition(":")
        left, right = (results[int(one)] for one in which.split(","))
        results.append(torch.einsum(equation, left, right))
    return results[-1]


def cheaper(torch: Any, operands: Any, today: str, other: str) -> Any:
    """The other order."""
    return plain(torch, operands, other, today)


class _Chain(msgspec.Struct, frozen=True):
    """Products in a row that another order does sooner."""

    today: ProductTree
    then: ProductTree
    forward: I64  # atoms that go
    backward: I64
    left: float  # of today's cost what the other order has

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])


def use(facts: Facts) -> Outcome:
    trees = facts.products if facts.products is not None else _threes(facts)
    if not trees:
        return no_use("product-order/none")
    found = [chain for tree in trees if (chain := _shorter(facts, tree)) is not None]
    if not found:
        return no_use("product-order/as-good")
    if lacks_rates(facts):
        return no_ceilings(facts)
    every = np.unique(np.concatenate([one.atoms for one in found]))
    longest = max(found, key=lambda one: time_of(facts, one.atoms))
    scaling, count = factors(longest.today), len(longest.today.operands)
    figures = {
        "spent_ms": time_of(facts, every),
        "from_left": _from_left(longest),
        "left_share": cost_of(longest.then, _sums(longest.then))
        / cost_of(longest.today, _sums(longest.today)),
        "matrices": count - len(scaling),
        "scaled": bool(scaling),
        "doubtful": facts.products is None,
    }
    shapes = [longest.today.operands[at] for at in range(count) if at not in scaling]
    dims = ("×".join(str(longest.today.sizes[label]) for label in one) for one in shapes)
    return Use(
        Claim(
            "product-order/other-way",
            figures,
            {"shapes": "·".join(f"[{one}]" for one in dims)},
            lines(*dict.fromkeys(one.today.steps[-1].place for one in found)),
        ),
        to_floor(facts, every, np.zeros(len(every))),
        causes_of(facts, every, MOVES),
        likely=lambda made: _played(facts, found),
        condition="" if facts.products is not None else "product-read-by-nothing-else",
        rewrites=_rewrites(facts, found),
    )


def _from_left(one: _Chain) -> bool | None:
    """Of three matrices, whether today's order begins with those on the left and the other with those on the
    right; None where they are more, or neither way."""
    matrices = sorted(set(range(len(one.today.operands))) - factors(one.today))
    begins = [_first_pair(tree, set(matrices)) for tree in (one.today, one.then)]
    if len(matrices) != 3 or begins[0] == begins[1] or {matrices[0], matrices[2]} in begins:
        return None
    return begins[0] == set(matrices[:2])


def _first_pair(tree: ProductTree, matrices: set[int]) -> set[int]:
    """The matrices that are multiplied first."""
    inside = [{at} & matrices for at in range(len(tree.operands))]
    for step in tree.steps:
        left, right = inside[step.left], inside[step.right]
        if left and right:
            return left | right
        inside.append(left | right)
    return set()


def _shorter(facts: Facts, tree: ProductTree) -> _Chain | None:
    """Of all chains in it the shortest that gives nearly all that another order could; None: none does."""
    cost, found = _floors(facts, tree), []
    for today in parts(tree):
        then, now = best(today, cost), cost_of(today, cost)
        after = cost_of(then, cost)
        if after < MAJORITY_SHARE * now:
            found.append((now - after, today, then, after / now))
    most = max((saved for saved, *_ in found), default=0.0)
    enough = [one for one in found if one[0] >= NEARLY_ALL * most]
    if not enough:
        return None
    _, today, then, left = min(enough, key=lambda one: (len(one[1].operands), -one[0]))
    return _Chain(
        today,
        then,
        _gone(facts, today, np.concatenate([step.forward for step in today.steps])),
        _gone(facts, today, np.concatenate([step.backward for step in today.steps])),
        left,
    )


def _gone(facts: Facts, today: ProductTree, atoms: I64) -> I64:
    """Of what its steps launch the products, what scales them, and copies of what only this order makes."""
    least = min(size(today, one) for one in made(today)[len(today.operands) : -1])

    def goes(atom: int) -> bool:
        if facts.kernel_class(atom) in MATRIX_CLASSES:
            return True
        row = facts.op_row(atom)
        if row < 0:
            return False
        tensors = Arguments(facts.timeline.inputs_of(row)).tensors()
        large = max((one.elements for one in tensors), default=0) >= least
        return large or facts.timeline.name_of(row) in FACTORS

    return np.array([atom for atom in atoms.tolist() if goes(atom)], np.int64)


# -- what an order costs -----------------------------------------------------------------------------------


def _sums(tree: ProductTree) -> Cost:
    """Multiplications."""
    return lambda left, right, result: float(size(tree, left | right))


def _floors(facts: Facts, tree: ProductTree) -> Cost:
    """What a step cannot take less than, ns; where nobody knows the device's rates, multiplications."""
    every = np.concatenate([step.forward for step in tree.steps])
    rate, width = facts.ceilings.flops.get(_math(facts, every)), _width(tree)
    if rate is None or not facts.ceilings.bandwidth:
        return _sums(tree)

    def floor(left: Labels, right: Labels, result: Labels) -> float:
        numbers = sum(size(tree, one) for one in (left, right, result))
        multiplies = 2 * size(tree, left | right) if not left | right <= result else 0
        return max(multiplies / rate * NS_PER_S, moving_ns(facts, float(numbers * width)))

    return floor


def _math(facts: Facts, atoms: I64) -> str:
    """The format that most of some products run in."""
    index = facts.kernels.math_index[facts.atoms.index[atoms]]
    known = index[(index >= 0) & facts.kernels.is_class(*MATRIX_CLASSES)[facts.atoms.index[atoms]]]
    return MATH_TYPES[int(np.bincount(known).argmax())] if len(known) else "fp32"


def _width(tree: ProductTree) -> int:
    return max(item_size(kind) or 0 for kind, one in zip(tree.types, tree.operands, strict=True) if one)


def _played(facts: Facts, found: list[_Chain]) -> Change:
    """As many kernels as the other order has steps, and two for the gradients of each."""
    kernels = []
    for one in found:
        times, ahead, back = _times(facts, one), 0.0, 0.0
        count, labels = len(one.then.operands), made(one.then)
        cost, math_type = _floors(facts, one.then), _math(facts, one.forward)
        for at, step in enumerate(one.then.steps):
            left, right, result = labels[step.left], labels[step.right], labels[count + at]
            ways = [(left, right, result), (result, right, left), (result, left, right)]
            first, *others = (_takes(facts, one.then, way, cost(*way), math_type) for way in ways)
            ahead, back = ahead + first, back + sum(others)
        steps = len(one.then.steps)
        kernels.append((rows_of(facts, one.forward), steps * times, ahead * times))
        kernels.append((rows_of(facts, one.backward), 2 * steps * times, back * times))
    return in_few_kernels(kernels)


def _takes(
    facts: Facts,
    tree: ProductTree,
    way: tuple[Labels, Labels, Labels],
    floor: float,
    math_type: str,
) -> float:
    """ns of one step; one that has too few results for all multiprocessors has only some of these."""
    left, right, result = way
    curve = "pointwise" if left | right <= result else f"matmul/{math_type}"
    usual = float(curves().likely_ns(curve, np.array([max(floor, 1.0)]))[0])
    batch = size(tree, left & right & result)
    sides = [
        math.ceil(size(tree, (one - other) & result) / PIECE) for one, other in ((left, right), (right, left))
    ]
    share = batch * math.prod(sides) / (facts.ceilings.sm_count or 1)
    return usual if batch == 1 or share >= 1.0 else max(floor / share, usual)


def _times(facts: WorkFacts, one: _Chain) -> int:
    """In how many of the traced steps it was seen."""
    rows = facts.kernels.op[facts.atoms.index[one.forward]]
    step = np.searchsorted(facts.steps.host, facts.timeline.events.start[rows[rows >= 0]], side="right")
    return max(len(np.unique(step)), 1)


# -- where nobody saw tensors ------------------------------------------------------------------------------


def _threes(facts: WorkFacts) -> list[ProductTree]:
    """Neighbours among what the job's own threads launch: two products, and nothing between them."""
    events, by = facts.timeline.events, passes(facts)
    called = np.unique(by.forward[by.forward >= 0])
    called = called[np.lexsort((events.start[called], events.thread[called]))]
    near = [
        (first, second, tree)
        for first, second in pairwise(called.tolist())
        if (tree := _three(facts, first, second)) is not None
    ]
    seconds = np.array([second for _, second, _ in near], np.int64)
    found = []
    for first, second, tree in near:
        if _read_once(facts, first, seconds):
            place = line_of(facts, first) or ""
            steps = zip(tree.steps, (first, second), strict=True)
            found.append(
                replace(
                    tree,
                    steps=tuple(
                        replace(step, place=place, forward=atoms[0], backward=atoms[1])
                        for step, row in steps
                        for atoms in [by.atoms_of([row])]
                    ),
                )
            )
    return found


def _three(facts: StepFacts, first: int, second: int) -> ProductTree | None:
    """None where the second reads something else, or either side might be the first one's result."""
    if not {facts.timeline.name_of(first), facts.timeline.name_of(second)} <= PRODUCTS:
        return None
    one, other = (Arguments(facts.timeline.inputs_of(row)) for row in (first, second))
    a, b, left, right = one.tensor(0), one.tensor(1), other.tensor(0), other.tensor(1)
    if a is None or b is None or left is None or right is None:
        return None
    result = (*a.dims[:-1], b.dims[-1])
    if (left.dims == result) == (right.dims == result):
        return None
    from_left = left.dims == result
    sides = (a, b, right) if from_left else (left, a, b)
    *batch, n, k = sides[0].dims
    at = len(batch)
    labels = tuple(range(at))
    return ProductTree(
        operands=tuple((*labels, at + one, at + one + 1) for one in range(3)),
        types=tuple(side.dtype for side in sides),
        result=(*labels, at, at + 3),
        sizes=(*batch, n, k, *(side.dims[-1] for side in sides[1:])),
        steps=(ProductStep(0, 1), ProductStep(3, 2)) if from_left else (ProductStep(1, 2), ProductStep(0, 3)),
    )


def _read_once(facts: StepFacts, first: int, seconds: I64) -> bool:
    """Whether no other forward op of the job reads a tensor of the shape of the first one's result. The trace
    does not say which tensor an op reads: where another has that shape, it may be the one."""
    a, b = (Arguments(facts.timeline.inputs_of(first)).tensor(at) for at in (0, 1))
    assert a is not None and b is not None
    reads = in_window(facts, reading(facts, (*a.dims[:-1], b.dims[-1])))
    reads = reads[~facts.links.backward[reads] & ~np.isin(reads, seconds)]
    return all(facts.timeline.name_of(int(row)) in HANDS_ON for row in reads)


def _rewrites(facts: WorkFacts, found: list[_Chain]) -> tuple[Rewrite, ...]:
    """One for each set of shapes; of operands in several formats nobody knows what is cast where."""
    alike: dict[tuple[object, ...], list[_Chain]] = {}
    for one in found:
        scaling = factors(one.today)
        types = {kind for at, kind in enumerate(one.today.types) if at not in scaling}
        trains = len(one.backward) > 0
        dims = [tuple(one.today.sizes[label] for label in labels) for labels in one.today.operands]
        key = (tuple(dims), *types, spelled(one.today), spelled(one.then), trains)
        if len(types) == 1:
            alike.setdefault(key, []).append(one)
    return tuple(_rewrite(facts, mine) for mine in alike.values())


def _rewrite(facts: WorkFacts, mine: list[_Chain]) -> Rewrite:
    today, trains = mine[0].today, len(mine[0].backward) > 0
    scaling = factors(today)
    kind = next(kind for at, kind in enumerate(today.types) if at not in scaling)
    draws: list[Draw] = [
        Draw(tuple(today.sizes[label] for label in one), kind, has_gradient=trains and at not in scaling)
        for at, one in enumerate(today.operands)
    ]
    return Rewrite(
        "product-order",
        (draws, spelled(today), spelled(mine[0].then)),
        np.unique(rows_of(facts, np.concatenate([one.atoms for one in mine]))),
        sum(_times(facts, one) for one in mine),
        trains,
    )


FIX = Fix(MOVES, "safe", use, reorders=True, removes=True)
