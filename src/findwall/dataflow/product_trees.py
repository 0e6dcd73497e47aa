"""Products of matrices whose results go into other products, and nowhere else.

A product that is given another one's result is one sum over more operands, and such a sum can be taken in any
order. So it stays with what commutes with products in between: a number, or a factor for some of the
dimensions, that it is multiplied with or divided by; transposes, other views, copies and casts. Each
dimension of an operand bears labels: where two operands have the same one, it is the same dimension of the
sum, and a label that the result lacks is summed over.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.dataflow.joining import Joined
from findwall.dataflow.linking import Flow, in_backward, judged, of_ours, rows_under
from findwall.dataflow.row_ops import RowOps, Shape
from findwall.dataflow.unneeded import forward_heads, observed_ops
from findwall.model.dataflow import LINE, READ, SEEN, ProductStep, ProductTree
from findwall.work.work_facts import WorkFacts

# Where among their arguments the two are that they multiply.
_PRODUCTS = {"mm": 0, "bmm": 0, "matmul": 0, "linear": 0, "mv": 0, "addmm": 1, "baddbmm": 1, "einsum": 0}
_ADDS = frozenset({"addmm", "baddbmm"})  # something else to the product
_DIVIDES = frozenset({"div", "true_divide", "divide"})
_FACTORS = frozenset({"mul", "multiply"}) | _DIVIDES
_SAME = frozenset({"to", "_to_copy", "contiguous", "clone", "detach", "alias", "neg"})
_SWAPS = frozenset({"t", "mT", "transpose", "swapaxes"})
_RESHAPES = frozenset({"view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze"})
_HANDS_ON = _SAME | _SWAPS | _RESHAPES | {"permute"}
# Orders are many: all of those of eight operands are looked through in no time. Chosen by hand.
MOST_OPERANDS = 8

Dim = tuple[int, ...]  # the labels that a dimension is made of; none where it is of length one


class _Part(msgspec.Struct):
    """An operand, or a result that is one sum over several."""

    dims: list[Dim]
    at: int  # which of the results; an operand: -1, -2, …


class _Found(msgspec.Struct):
    """A tree as far as it was walked."""

    sizes: list[int] = []  # of each label
    same: dict[int, Dim] = {}  # labels that turned out to be others
    operands: list[tuple[list[Dim], str]] = []  # with the type of their numbers
    order: list[tuple[int, int]] = []  # what is multiplied with what
    heads: list[tuple[int, int]] = []  # and the result that each is there for
    products: int = 0

    def leaf(self, shape: Shape, kind: str) -> _Part:
        dims: list[Dim] = []
        for length in shape:
            dims.append((len(self.sizes),) if length > 1 else ())
            self.sizes += [length] if length > 1 else []
        self.operands.append((dims, kind))
        return _Part(dims, -len(self.operands))

    def flat(self, dim: Dim) -> Dim:
        """The labels that these are now."""
        return tuple(
            label for one in dim for label in (self.flat(self.same[one]) if one in self.same else (one,))
        )

    def length(self, dim: Dim) -> int:
        return math.prod(self.sizes[label] for label in dim)

    def unified(self, one: Dim, other: Dim) -> bool:
        """Whether two dimensions can be the same; then they are from now on."""
        one, other = self.flat(one), self.flat(other)
        if not one or not other:
            return True  # what is one long goes with any
        if [self.sizes[label] for label in one] == [self.sizes[label] for label in other]:
            self.same.update({mine: (its,) for mine, its in zip(one, other, strict=True) if mine != its})
        elif self.length(one) != self.length(other) or min(len(one), len(other)) > 1:
            return False
        elif len(one) == 1:
            self.same[one[0]] = other
        else:
            self.same[other[0]] = one
        return True

    def joined(self, left: _Part, right: _Part, dims: list[Dim]) -> _Part:
        self.order.append((left.at, right.at))
        return _Part(dims, len(self.order) - 1)

    def numbered(self, at: int) -> int:
        """Operands first, then results."""
        return -at - 1 if at < 0 else len(self.operands) + at

    def back_to(self, earlier: _Found) -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(earlier, field))


def traced_products(facts: WorkFacts, graph: Joined) -> tuple[ProductTree, ...]:
    """With the device time of each in the traced steps."""
    op, forward = observed_ops(facts, graph), forward_heads(graph.flow)
    of = np.where(op >= 0, forward[np.maximum(op, 0)], -1)
    row = facts.kernels.op[facts.atoms.index]
    back = (row >= 0) & facts.links.backward[np.maximum(row, 0)]
    found = []
    for tree, heads in product_trees(graph.flow):
        steps = []
        for at, step in enumerate(tree.steps):
            mine = np.isin(of, [head for head, its in heads if its == at])
            steps.append(
                replace(step, forward=np.flatnonzero(mine & ~back), backward=np.flatnonzero(mine & back))
            )
        if any(len(step.forward) for step in steps):
            found.append(replace(tree, steps=tuple(steps)))
    return tuple(found)


def product_trees(flow: Flow) -> list[tuple[ProductTree, list[tuple[int, int]]]]:
    """Each with the outermost forward ops that it is written as, and the step that each is for."""
    return _Trees(flow).found()


class _Trees:
    def __init__(self, flow: Flow) -> None:
        observed = flow.observed
        self._observed, self._ops = observed, RowOps(flow)
        heads = judged(flow)
        self._heads: list[int] = heads[~in_backward(observed)[heads]].tolist()
        self._known = set(self._heads)
        self._readers = _readers(flow)
        self._views: dict[int, list[int]] = {}  # by tensor those that handed it out, in their order
        for head in self._heads:
            if self._name(head) in _HANDS_ON and self._ops.operands(head):
                for tensor in self._hands_out(head):
                    self._views.setdefault(tensor, []).append(head)

    def found(self) -> list[tuple[ProductTree, list[tuple[int, int]]]]:
        found, taken = [], set[int]()
        for head in reversed(self._heads):
            one = _Found()
            root = None if head in taken or self._name(head) not in _PRODUCTS else self._product(one, head)
            if root is None or one.products < 2 or len(one.operands) > MOST_OPERANDS:
                continue
            taken.update(mine for mine, _ in one.heads)
            found.append((self._told(one, root), one.heads))
        return found[::-1]

    def _told(self, one: _Found, root: _Part) -> ProductTree:
        return ProductTree(
            operands=tuple(one.flat(sum(dims, ())) for dims, _ in one.operands),
            types=tuple(kind for _, kind in one.operands),
            result=one.flat(sum(root.dims, ())),
            sizes=tuple(one.sizes),
            steps=tuple(
                ProductStep(one.numbered(left), one.numbered(right), self._line(one, at))
                for at, (left, right) in enumerate(one.order)
            ),
        )

    def _line(self, one: _Found, at: int) -> str:
        line = next((int(self._observed.line[head]) for head, its in one.heads if its == at), -1)
        return self._observed.names[line].removeprefix(LINE) if line >= 0 else ""

    # -- from the last product back ------------------------------------------------------------------------

    def _product(self, one: _Found, head: int) -> _Part | None:
        """None where its operands were not seen, or do not go together."""
        name, operands = self._name(head), self._ops.operands(head)
        places = _multiplied(name, self._ops.given(head), [operand.shape for operand in operands])
        if places is None:
            return None
        *inputs, output = places
        first = _PRODUCTS[name]
        parts = [self._operand(one, head, first + at) for at in range(len(inputs))]
        by: dict[str, Dim] = {}
        for part, indices in zip(parts, inputs, strict=True):
            for index, dim in zip(indices, part.dims, strict=True):
                if not one.unified(by.get(index, ()), dim):
                    return None
                by[index] = by.get(index) or dim
        result = parts[0]
        for part in parts[1:]:
            result = one.joined(result, part, [])
        one.products += len(parts) - 1
        one.heads.append((head, result.at))
        return _Part([by[index] for index in output], result.at)

    def _operand(self, one: _Found, head: int, at: int) -> _Part:
        """What an op is given: a part of the tree where it is made by what commutes, and read by that op
        alone; else as it is."""
        operand = self._ops.operands(head)[at]
        way = self._way(head, operand.use)
        if way:
            earlier = deepcopy(one)
            shapes = [self._ops.operands(view)[0].shape for view in way[1:]] + [operand.shape]
            part = self._commuting(one, way[0], shapes[0])
            for view, shape in zip(way[1:], shapes[1:], strict=True):
                part = part and self._viewed(one, part, view, shape)
            fits = part is not None and tuple(one.length(one.flat(dim)) for dim in part.dims) == operand.shape
            if part is not None and fits and part.at >= 0 and len(one.operands) <= MOST_OPERANDS:
                one.heads += [(view, part.at) for view in way[1:]]
                return part
            one.back_to(earlier)
        return one.leaf(operand.shape, self._type(operand.use))

    def _commuting(self, one: _Found, head: int, shape: Shape) -> _Part | None:
        """The result of a product, or of what may as well come before one or behind it."""
        name, operands = self._name(head), self._ops.operands(head)
        if name in _PRODUCTS:
            is_plain = name not in _ADDS and not (name == "linear" and len(operands) > 2)
            return self._product(one, head) if is_plain else None
        if name not in _FACTORS:
            part = self._operand(one, head, 0)
            one.heads.append((head, part.at))
            return self._viewed(one, part, head, shape)
        if len(operands) != 2 or len(self._ops.given(head)) > 2:
            return None
        left = self._operand(one, head, 0)
        if name in _DIVIDES:
            right = one.leaf(operands[1].shape, self._type(operands[1].use))
        else:
            right = self._operand(one, head, 1)
        dims: list[Dim] = []
        for at in range(-max(len(left.dims), len(right.dims)), 0):
            mine, other = (part.dims[at] if -at <= len(part.dims) else () for part in (left, right))
            if not one.unified(mine, other):
                return None
            dims.append(mine or other)
        if max(left.at, right.at) < 0 and math.prod(shape) <= max(operands[0].elements, operands[1].elements):
            return None  # it scales an operand, and might as well be one
        found = one.joined(left, right, dims)
        one.heads.append((head, found.at))
        return found

    def _viewed(self, one: _Found, part: _Part, view: int, shape: Shape) -> _Part | None:
        """As it is seen by what has this shape then; None where a dimension is cut into pieces."""
        name, given, dims = self._name(view), self._ops.given(view), list(part.dims)
        if name in _SAME:
            return part
        if name == "permute":
            axes: Any = given[1]
            return _Part([dims[axis] for axis in axes], part.at)
        if name in _SWAPS:
            first, second = given[1:3] if len(given) > 2 else (-1, -2)
            if len(dims) < 2 or not isinstance(first, int) or not isinstance(second, int):
                return None
            dims[first], dims[second] = dims[second], dims[first]
            return _Part(dims, part.at)
        labels, found = list(one.flat(sum(dims, ()))), list[Dim]()
        for length in shape:
            taken: Dim = ()
            while one.length(taken) < length and labels:
                taken += (labels.pop(0),)
            if one.length(taken) != length:
                return None
            found.append(taken)
        return None if labels else _Part(found, part.at)

    # -- who made it ---------------------------------------------------------------------------------------

    def _way(self, head: int, use: int) -> list[int]:
        """The op that wrote what another is given and the views of it on the way, if nothing else reads it;
        else nothing."""
        maker = self._ops.writer_of.get(use, -1)
        if maker not in self._known or self._name(maker) not in _HANDS_ON | _FACTORS | _PRODUCTS.keys():
            return []
        tensor, before, views = int(self._observed.tensor[use]), head, list[int]()
        while tensor not in self._hands_out(maker):
            earlier = [view for view in self._views.get(tensor, ()) if maker < view < before]
            if not earlier:
                return []
            before = earlier[-1]
            views.append(before)
            tensor = int(self._observed.tensor[self._ops.operands(before)[0].use])
        others = self._readers.get(maker, set()) - {head, maker, *views}
        return [] if others else [maker, *views[::-1]]

    def _hands_out(self, head: int) -> set[int]:
        uses = self._observed.uses_of(head)
        return set(self._observed.tensor[uses][self._observed.way[uses] != READ].tolist())

    def _name(self, head: int) -> str:
        return self._ops.name(head).rstrip("_") if head >= 0 else ""

    def _type(self, use: int) -> str:
        return self._observed.types[int(self._observed.type[use])]


def _readers(flow: Flow) -> dict[int, set[int]]:
    """The forward ops of the job that read what each outermost op wrote, and whatever the host reads. That a
    variable still holds it when all is over is no reading."""
    observed = flow.observed
    ours = np.setdiff1d(of_ours(observed), list(rows_under(observed, SEEN)))
    counts = (flow.writer >= 0) & ~in_backward(observed)[flow.reader] & ~np.isin(flow.reader, ours)
    found: dict[int, set[int]] = {}
    writers, readers = flow.head[flow.writer[counts]], flow.head[flow.reader[counts]]
    for writer, reader in zip(writers.tolist(), readers.tolist(), strict=True):
        found.setdefault(writer, set()).add(reader)
    return found


Indices = list[str]  # of an operand's dimensions, or of the result's: those of one name are the same


def _multiplied(name: str, given: list[object], shapes: list[Shape]) -> list[Indices] | None:
    """Of what a product multiplies, and of its result; None where it is none of two matrices or more."""
    if name == "einsum":
        return _of_equation(str(given[0]), shapes)
    mine = shapes[_PRODUCTS[name] :][:2]
    if len(mine) < 2 or not min(map(len, mine)):
        return None
    left, right = (_batches(len(shape) - 2) for shape in mine)
    left += ["n", "k"][-len(mine[0]) :]
    if name == "linear":
        right = ["m", "k"][-len(mine[1]) :]
    else:
        right += ["k", "m"] if len(mine[1]) > 1 else ["k"]
    batches = _batches(max(map(len, mine)) - 2)
    return [left, right, batches + [one for one in ("n", "m") if one in left + right]]


def _batches(count: int) -> Indices:
    """Counted from the last one on, as shapes are broadcast."""
    return [f"batch {at}" for at in range(count, 0, -1)]


def _of_equation(equation: str, shapes: list[Shape]) -> list[Indices] | None:
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    found = []
    for text, shape in zip(inputs.split(","), shapes, strict=False):
        before, dots, behind = text.partition("...")
        rest = _batches(len(shape) - len(before + behind)) if dots else []
        found.append([*before, *rest, *behind])
    ranks = [len(one) for one in found] == [len(shape) for shape in shapes]
    if not arrow or not ranks or len(found) < 2 or any(len(set(one)) < len(one) for one in found):
        return None
    before, dots, behind = output.partition("...")
    rest = max((_batches(len([one for one in mine if " " in one])) for mine in found), key=len)
    return [*found, [*before, *(rest if dots else []), *behind]]
