"""Convolutions that are given a weight for each sample, made of one weight for all.

Each sample scales the channels of one weight, those that it reads or those that it makes, and all samples are
convolved as groups of one image. A factor of whole channels commutes with the convolution: it can scale the
maps instead. That the scaled weight is brought to a length by its own sum of squares stays possible: the sum
is a product of squares.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from findwall.dataflow.joining import Joined
from findwall.dataflow.linking import Flow, in_backward, judged, of_ours, rows_under
from findwall.dataflow.row_ops import RowOps, Shape
from findwall.dataflow.unneeded import forward_heads, observed_ops
from findwall.model.dataflow import LINE, SEEN, ScaledWeight
from findwall.work.work_facts import WorkFacts

CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})
_GROUPS = 6  # among what a convolution is given: (input, weight, bias, stride, padding, dilation, groups)
_COPIES = frozenset({"to", "_to_copy", "contiguous", "clone", "reshape", "flatten"})
_FACTORS = frozenset({"mul", "div"})
_SQUARES = frozenset({"square", "pow", "mul"})
_SUMS = frozenset({"sum", "mean", "linalg_vector_norm"})
_RESHAPES = frozenset(
    {"view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "detach", "permute"}
)


def traced_scaled(facts: WorkFacts, graph: Joined) -> tuple[ScaledWeight, ...]:
    """Of the traced steps, with what each launches."""
    op, forward = observed_ops(facts, graph), forward_heads(graph.flow)
    of = np.where(op >= 0, forward[np.maximum(op, 0)], -1)
    row = facts.kernels.op[facts.atoms.index]
    back = (row >= 0) & facts.links.backward[np.maximum(row, 0)]
    found = []
    for one, heads in scaled_weights(graph.flow):
        mine = np.isin(of, heads)
        if (mine & ~back).any():
            ahead, behind = np.flatnonzero(mine & ~back), np.flatnonzero(mine & back)
            found.append(replace(one, forward=ahead, backward=behind))
    return tuple(found)


def scaled_weights(flow: Flow) -> list[tuple[ScaledWeight, list[int]]]:
    """Each with the outermost ops of the forward pass that another form has no need of."""
    return _Weights(flow).found()


class _Weights(RowOps):
    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        heads = judged(flow)
        self._heads: list[int] = heads[~in_backward(flow.observed)[heads]].tolist()
        ours = np.setdiff1d(of_ours(flow.observed), list(rows_under(flow.observed, SEEN)))
        counts = (flow.writer >= 0) & ~in_backward(flow.observed)[flow.reader] & ~np.isin(flow.reader, ours)
        self._writers = set(flow.head[flow.wrote].tolist())
        self._readers: dict[int, set[int]] = {}
        pairs = flow.head[flow.writer[counts]].tolist(), flow.head[flow.reader[counts]].tolist()
        for writer, reader in zip(*pairs, strict=True):
            self._readers.setdefault(writer, set()).add(reader)

    def found(self) -> list[tuple[ScaledWeight, list[int]]]:
        every = (self._scaled(head) for head in self._heads if self.name(head) in CONVOLUTIONS)
        return [one for one in every if one is not None]

    def _scaled(self, head: int) -> tuple[ScaledWeight, list[int]] | None:
        operands, given = self.operands(head), self.given(head)
        groups = given[_GROUPS] if len(given) > _GROUPS else 1
        if len(operands) < 2 or not isinstance(groups, int) or groups < 2:
            return None
        image, weight = operands[0].shape, operands[1].shape
        samples = groups
        if image[0] != 1 or weight[0] % samples or image[1] != samples * weight[1]:
            return None
        one = (weight[0] // samples, *weight[1:])
        chain = self._chain(operands[1].use, samples, one)
        if chain is None or len(operands) > 2:
            return None
        made, reads, makes = chain
        others = self._lengths(made, head, samples * math.prod(one))
        if others is None:
            return None
        line, uses = int(self._observed.line[head]), [operands[0].use, operands[1].use]
        types = [self._observed.types[int(self._observed.type[use])] for use in uses]
        base = self.operands(made[-1])
        told = ScaledWeight(
            samples=samples,
            weight=one,
            maps=image[2:],
            results=self._results(head, samples * one[0]),
            dtype=types[0],
            base=self._observed.types[int(self._observed.type[base[0].use])],
            reads=reads,
            makes=makes,
            lengths=bool(others),
            how=tuple(tuple(part) if isinstance(part, list) else () for part in given[3:_GROUPS]),
            place=self._observed.names[line].removeprefix(LINE) if line >= 0 else "",
        )
        return told, sorted({head, *made, *others})

    def _results(self, head: int, channels: int) -> int:
        """Places of the image that it makes."""
        return max(self.made(head) // channels, 1)

    def _chain(self, use: int, samples: int, one: Shape) -> tuple[list[int], bool, bool] | None:
        """From what a convolution is given back to a weight that all samples share: the ops, and whether
        channels that it reads and channels that it makes are scaled for each sample."""
        made, reads, makes = list[int](), False, False
        whole = samples * math.prod(one)
        head = self.writer_of.get(use, -1)
        while head >= 0:
            operands, name = self.operands(head), self.name(head).rstrip("_")
            made.append(head)
            if name in _COPIES and operands and operands[0].elements == whole:
                head = self.writer_of.get(operands[0].use, -1)
                continue
            if name not in _FACTORS or len(operands) != 2:
                return None
            sizes = [operand.elements for operand in operands]
            at = int(np.argmax(sizes))
            factor = operands[1 - at].shape
            if math.prod(factor) > 1:
                kind = _channels(factor, samples, one)
                if kind is None:
                    return None
                reads, makes = reads | (kind == "reads"), makes | (kind == "makes")
            if sizes[at] * samples == whole and math.prod(factor) >= samples:
                return made, reads, makes
            if sizes[at] != whole:
                return None
            head = self.writer_of.get(operands[at].use, -1)
        return None

    def _lengths(self, made: list[int], head: int, whole: int) -> list[int] | None:
        """The ops that sum up squares of the weights of all samples; None where anything else reads these."""
        found, left = list[int](), list(made)
        known = {head, *made}
        while left:
            for reader in self._readers.get(left.pop(), ()):
                name = self.name(reader).rstrip("_")
                if reader in known or (name in _RESHAPES and reader not in self._writers):
                    continue
                makers = {self.writer_of.get(one.use, -1) for one in self.operands(reader) if one.shape}
                if name not in _SQUARES | _SUMS | _COPIES or len(makers) > 1:
                    return None
                found.append(reader)
                known.add(reader)
                if self.made(reader) == whole:
                    left.append(reader)
                elif name not in _SUMS:
                    return None
        return found


def _channels(factor: Shape, samples: int, one: Shape) -> str | None:
    """Which channels a factor scales for each sample; None where it scales anything else."""
    wide = (1,) * (len(one) + 1 - len(factor)) + factor
    if len(wide) != len(one) + 1 or wide[0] != samples or any(length != 1 for length in wide[3:]):
        return None
    out, into = wide[1], wide[2]
    if into == one[1] and out == 1:
        return "reads"
    return "makes" if out == one[0] and into == 1 else None
