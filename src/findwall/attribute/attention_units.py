"""Attention that is written out, as units: what one call of a fused kernel would do, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from findwall.attribute.device_time import of_class, rows_of
from findwall.attribute.facts import Facts
from findwall.attribute.units import Unit
from findwall.attribute.workmodel.arguments import Arguments, Tensor
from findwall.model.events import Inputs
from findwall.model.intervals import I64
from findwall.model.probes import ATTENTION

SOFTMAX = "_softmax"
MASKS = frozenset({"masked_fill", "masked_fill_", "where", "tril"})
SCORE_DIMS = (3, 4)  # of the scores: [batch·heads, …] or [batch, heads, …]


def attention_units(facts: Facts) -> Iterator[Unit]:
    """Two units for each shape of scores; where heads or widths cannot be told, none."""
    atoms = facts.atoms.of("unfused-attention")
    if len(atoms) == 0:
        return
    products = of_class(facts, "matmul")[atoms]
    softmaxes = _ops_named(facts, atoms[~products], SOFTMAX)
    for scores in dict.fromkeys(softmaxes.values()):
        calls = [row for row, one in softmaxes.items() if one == scores]
        yield from _of_scores(facts, scores, len(calls), atoms[products], atoms[~products])


def _of_scores(facts: Facts, scores: Tensor, calls: int, products: I64, beside: I64) -> Iterator[Unit]:
    *batch, rows, columns = scores.dims
    mine, width = _products_on(facts, products, math.prod(batch), rows, columns)
    if width is None:
        return
    dtype = _dtype(facts, int(mine[0]))  # the scores' own may be wider: autocast's softmax writes fp32
    lead = batch if len(batch) == 2 else [math.prod(batch), 1]
    query: list[int | list[int]] = [*lead, rows, width]
    key: list[int | list[int]] = [*lead, columns, width]
    mask, causal = _mask(facts, beside, scores)
    index = facts.kernels.op[facts.atoms.index[mine]]
    backward = facts.links.backward[np.maximum(index, 0)] & (index >= 0)
    for way, chosen in (("forward", ~backward), ("backward", backward)):
        atoms = mine[chosen]
        if len(atoms) == 0:
            continue
        found = rows_of(facts, atoms)
        yield Unit(
            kind="attention",
            op=ATTENTION,
            inputs=Inputs([query, key, mask], [dtype] * 3, [], [way, str(causal)]),
            rows=found,
            carries=np.ones(len(found), bool),
            calls=calls,
            ns=float(facts.atoms.own[atoms].sum()) / facts.steps.count,
            wide=dtype.lower() == "float",
            absolute=True,
        )


def _ops_named(facts: Facts, atoms: I64, stem: str) -> dict[int, Tensor]:
    """The first tensor of each op of this name that owns one of these atoms, by the op's row."""
    found: dict[int, Tensor] = {}
    for row in np.unique(facts.kernels.op[facts.atoms.index[atoms]]).tolist():
        if row < 0 or facts.timeline.name_of(row).rpartition("::")[2] != stem:
            continue
        inputs = facts.timeline.inputs_of(row)
        tensor = Arguments(inputs).tensor(0) if inputs is not None else None
        if tensor is not None and len(tensor.dims) in SCORE_DIMS:
            found[row] = tensor
    return found


def _products_on(facts: Facts, atoms: I64, batch: int, rows: int, columns: int) -> tuple[I64, int | None]:
    """Products that make or read scores of this shape, and the width of their other side."""
    mine, widths = [], set()
    for atom in atoms.tolist():
        row = facts.op_row(atom)
        inputs = facts.timeline.inputs_of(row) if row >= 0 else None
        tensors = [one.dims for one in Arguments(inputs).tensors()][-2:] if inputs is not None else []
        width = _width(tensors, batch, rows, columns)
        if width is not None:
            mine.append(atom)
            widths.add(width)
    return np.array(mine, np.int64), widths.pop() if len(widths) == 1 else None


def _dtype(facts: Facts, atom: int) -> str:
    inputs = facts.timeline.inputs_of(facts.op_row(atom))
    return Arguments(inputs).tensors()[-1].dtype if inputs is not None else "float"


def _width(tensors: list[tuple[int, ...]], batch: int, rows: int, columns: int) -> int | None:
    """Of a product [batch, m, k] · [batch, k, n] with the scores on one side: the size that is not theirs."""
    if len(tensors) != 2 or any(len(dims) != 3 or dims[0] != batch for dims in tensors):
        return None
    (_, m, k), (_, _, n) = tensors
    sizes = sorted((m, k, n))
    for one in (rows, columns):
        if one not in sizes:
            return None
        sizes.remove(one)
    return sizes[0]


def _mask(facts: Facts, beside: I64, scores: Tensor) -> tuple[list[int | list[int]], bool]:
    """What is added to the scores (its shape), and whether they are masked the same for all: causal then."""
    causal = False
    for row in np.unique(facts.kernels.op[facts.atoms.index[beside]]).tolist():
        stem = facts.timeline.name_of(row).rpartition("::")[2] if row >= 0 else ""
        inputs = facts.timeline.inputs_of(row) if row >= 0 else None
        if inputs is None:
            continue
        tensors = Arguments(inputs).tensors()
        if stem in ("add", "add_") and len(tensors) == 2 and tensors[0].dims == scores.dims:
            return list(tensors[1].dims), False
        causal |= stem in MASKS and scores.dims[-1] == scores.dims[-2]
    return [], causal
