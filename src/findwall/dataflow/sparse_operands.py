"""Products with a matrix that is mostly zeros, and the same in every step.

How much of it is zero was looked at once, when the steps that were observed began. Nothing has written it
since; what a product is given may be a copy of it in another format. In rows (CSR) such a matrix has its
numbers alone, and a product reads a row of the other side for each of them: bytes, and no sums to speak of.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from findwall.dataflow.joining import Joined
from findwall.dataflow.linking import BEFORE, Flow, in_backward, judged, rows_under
from findwall.dataflow.row_ops import Operand, RowOps
from findwall.dataflow.unneeded import forward_heads, observed_ops
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.dataflow import LINE, ZEROS, SparseProduct
from findwall.model.intervals import I64
from findwall.work.op_arguments import item_size
from findwall.work.work_facts import WorkFacts, moving_ns

_PRODUCTS = {"mm": 0, "matmul": 0, "linear": 0, "addmm": 1}  # where the first of both is
_COPIES = frozenset({"to", "_to_copy", "contiguous", "clone", "detach"})
# Where nobody knows how fast memory is: numbers of a dense product for each that is found by its place. A
# core multiplies sixteen at once, and waits for those that it looks up. Chosen by hand.
DENSE_FOR_EACH = 20.0


def traced_sparse(facts: WorkFacts, graph: Joined) -> tuple[SparseProduct, ...]:
    """Those of the traced steps, with what each launches and the share of it that a sparse one would take."""
    op, forward = observed_ops(facts, graph), forward_heads(graph.flow)
    multiplies = facts.kernels.is_class(*MATRIX_CLASSES)[facts.atoms.index]
    of = np.where((op >= 0) & multiplies, forward[np.maximum(op, 0)], -1)
    row = facts.kernels.op[facts.atoms.index]
    back = (row >= 0) & facts.links.backward[np.maximum(row, 0)]
    found = []
    for head, one in sparse_products(graph.flow):
        ahead, behind = np.flatnonzero((of == head) & ~back), np.flatnonzero((of == head) & back)
        if len(ahead):
            found.append(_timed(facts, one, ahead, behind))
    return tuple(found)


def _timed(facts: WorkFacts, one: SparseProduct, ahead: I64, behind: I64) -> SparseProduct:
    ns = moving_ns(facts, one.nbytes)
    lefts = []
    for atoms in (ahead, behind):
        calls = len(np.unique(facts.kernels.op[facts.atoms.index[atoms]]))
        spent = float(facts.kernels.duration[facts.atoms.index[atoms]].sum())
        left = ns * calls / max(spent, 1.0) if facts.ceilings.bandwidth else one.share * DENSE_FOR_EACH
        lefts.append(min(left, 1.0))
    return replace(one, forward=ahead, backward=behind, left=(lefts[0], lefts[1]))


def sparse_products(flow: Flow) -> list[tuple[int, SparseProduct]]:
    """Outermost ops of the forward pass that multiply with a matrix which was looked at."""
    told = _told(flow)
    ops, observed = RowOps(flow), flow.observed
    heads = judged(flow)
    older = flow.writer == BEFORE
    storage_of = dict(zip(flow.use[older].tolist(), flow.storage[older].tolist(), strict=True))

    def share(operand: Operand) -> float | None:
        """Of its numbers those that are not zero."""
        if operand.use in storage_of:
            known = told.get(storage_of[operand.use])
            whole = known is not None and math.prod(operand.shape) == known[1]
            return known[0] if known is not None and whole else None
        maker = ops.writer_of.get(operand.use, -1)
        if maker < 0 or ops.name(maker) not in _COPIES or not ops.operands(maker):
            return None
        return share(ops.operands(maker)[0])

    found = []
    for head in heads[~in_backward(observed)[heads]].tolist() if told else ():
        name, operands = ops.name(head), ops.operands(head)
        both = operands[_PRODUCTS.get(name, 0) :][:2]
        if name not in _PRODUCTS or len(both) < 2:
            continue
        for at, (mine, other) in enumerate((both, both[::-1])):
            part = share(mine) if len(mine.shape) == 2 else None
            if part is None:
                continue
            rows, columns = mine.shape if at == 0 or name == "linear" else mine.shape[::-1]
            line = int(observed.line[head])
            one = SparseProduct(
                rows=rows,
                columns=columns,
                width=other.elements // columns,
                dtype=(dtype := observed.types[int(observed.type[mine.use])]),
                size=item_size(dtype) or 0,
                share=part,
                on_left=at == 0,
                place=observed.names[line].removeprefix(LINE) if line >= 0 else "",
            )
            found.append((head, one))
            break
    return found


def _told(flow: Flow) -> dict[int, tuple[float, int]]:
    """By storage, where nothing writes it: the share of numbers that are not zero, and how many there are."""
    observed, found = flow.observed, dict[int, tuple[float, int]]()
    for name in observed.names:
        if name.startswith(ZEROS):
            some, _, drawn = name.removeprefix(ZEROS).partition("/")
            reads = np.flatnonzero(np.isin(flow.reader, list(rows_under(observed, name))))
            for link in reads.tolist():
                region = observed.regions[int(observed.region[flow.use[link]])]
                numbers = math.prod(length for _, length in region.dims)
                # None met is no zero: one in as many as were drawn may be.
                found[int(flow.storage[link])] = max(int(some), 1) / max(int(drawn), 1), numbers
    written = set(flow.written.tolist())
    return {storage: one for storage, one in found.items() if storage not in written}
