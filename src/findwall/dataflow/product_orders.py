"""In which order several operands are best multiplied, and which part of a chain that is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

from msgspec.structs import replace

from findwall.model.dataflow import ProductStep, ProductTree

Labels = frozenset[int]
Cost = Callable[[Labels, Labels, Labels], float]  # of two operands and their result
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def cost_of(tree: ProductTree, cost: Cost) -> float:
    """Of all its steps, in its order."""
    labels = made(tree)
    count = len(tree.operands)
    return sum(
        cost(labels[step.left], labels[step.right], labels[count + at]) for at, step in enumerate(tree.steps)
    )


def made(tree: ProductTree) -> list[Labels]:
    """The labels of its operands, and of the results behind them."""
    every, inside = [frozenset(one) for one in tree.operands], [{at} for at in range(len(tree.operands))]
    for step in tree.steps:
        inside.append(inside[step.left] | inside[step.right])
        every.append(_left(tree, inside[-1]))
    return every


def _left(tree: ProductTree, inside: set[int]) -> Labels:
    """The labels of what some of its operands make together: those that anything else has."""
    mine = frozenset(label for at in inside for label in tree.operands[at])
    others = {label for at, one in enumerate(tree.operands) for label in one if at not in inside}
    return mine & (others | set(tree.result))


def best(tree: ProductTree, cost: Cost) -> ProductTree:
    """The same sum in the cheapest order of all."""
    count = len(tree.operands)
    labels = {
        some: _left(tree, {at for at in range(count) if some >> at & 1}) for some in range(1, 1 << count)
    }
    least: dict[int, tuple[float, int]] = {1 << at: (0.0, 0) for at in range(count)}
    for some in range(1, 1 << count):
        if some in least:
            continue
        ways = []
        one = (some - 1) & some
        while one:
            other = some ^ one
            if one > other:
                step = cost(labels[one], labels[other], labels[some])
                ways.append((least[one][0] + least[other][0] + step, one))
            one = (one - 1) & some
        least[some] = min(ways)
    steps: list[ProductStep] = []

    def number(some: int) -> int:
        if some & (some - 1) == 0:
            return some.bit_length() - 1
        one = least[some][1]
        left, right = sorted((number(one), number(some ^ one)))
        steps.append(ProductStep(left, right))
        return count + len(steps) - 1

    number((1 << count) - 1)
    return replace(tree, steps=tuple(steps))


def parts(tree: ProductTree) -> Iterator[ProductTree]:
    """Itself and every chain in it, whatever it is given taken as it is."""
    count = len(tree.operands)

    def ways(at: int) -> list[frozenset[int]]:
        """Steps that could be looked at together, of which this is the last; none: it is taken as it is."""
        if at < count:
            return [frozenset()]
        step = tree.steps[at - count]
        both = product(ways(step.left), ways(step.right))
        return [frozenset(), *(left | right | {at} for left, right in both)]

    for root in range(count, count + len(tree.steps)):
        yield from (_only(tree, sorted(some)) for some in ways(root) if len(some) > 1)


def _only(tree: ProductTree, steps: list[int]) -> ProductTree:
    count, labels = len(tree.operands), made(tree)
    chosen = [tree.steps[at - count] for at in steps]
    given = sorted({at for step in chosen for at in (step.left, step.right)} - set(steps))
    number = {at: new for new, at in enumerate([*given, *steps])}

    def kind(at: int) -> str:
        return tree.types[at] if at < count else kind(tree.steps[at - count].left)

    def dims(at: int) -> tuple[int, ...]:
        return tree.operands[at] if at < count else tuple(sorted(labels[at]))

    return replace(
        tree,
        operands=tuple(dims(at) for at in given),
        types=tuple(kind(at) for at in given),
        result=tree.result if steps[-1] == count + len(tree.steps) - 1 else dims(steps[-1]),
        steps=tuple(replace(step, left=number[step.left], right=number[step.right]) for step in chosen),
    )


def factors(tree: ProductTree) -> set[int]:
    """Operands that only scale what they meet: nothing is summed there."""
    count, labels, found = len(tree.operands), made(tree), set[int]()
    for at, step in enumerate(tree.steps):
        left, right = labels[step.left], labels[step.right]
        if left | right <= labels[count + at]:
            found |= {
                one for one in (step.left, step.right) if one < count and labels[one] < labels[count + at]
            }
    return found


def spelled(tree: ProductTree) -> str:
    """One product after the other: "0,1:ab,bc->ac;3,2:ac,cd->ad"."""
    count = len(tree.operands)
    dims = [*tree.operands, *(tuple(sorted(one)) for one in made(tree)[count:-1]), tree.result]
    letter = {label: LETTERS[at] for at, label in enumerate(sorted({label for one in dims for label in one}))}
    words = ["".join(letter[label] for label in one) for one in dims]
    return ";".join(
        f"{step.left},{step.right}:{words[step.left]},{words[step.right]}->{words[count + at]}"
        for at, step in enumerate(tree.steps)
    )


def size(tree: ProductTree, labels: Labels) -> int:
    return math.prod(tree.sizes[label] for label in labels)
