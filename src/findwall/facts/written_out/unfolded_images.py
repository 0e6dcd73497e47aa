"""Images that are taken apart into columns, one for each place of a window, only to be multiplied.

That product is a convolution, and a library's works without writing each number down once for every window
that it is in.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from findwall.facts.called_atoms import called_by, passes, read_behind, reading
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.work.op_arguments import Arguments
from findwall.work.op_families.movement import columns_of
from findwall.work.work_facts import WorkFacts

UNFOLDS = "aten::im2col"
PRODUCTS = frozenset({"aten::matmul", "aten::bmm", "aten::baddbmm", "aten::einsum"})


class UnfoldedImages(msgspec.Struct, frozen=True):
    """Those of the counted steps."""

    row: int  # the first
    window: int  # places of it
    atoms: I64  # that make the columns, and put their gradients back together


def unfolded_images(facts: WorkFacts) -> UnfoldedImages | None:
    """Where all that reads such columns multiplies them."""
    events = facts.timeline.events
    names = [at for at, name in enumerate(facts.timeline.names) if name == UNFOLDS]
    rows = facts.timeline.rows(Kind.OP)
    rows = rows[np.isin(events.name[rows], names) & ~facts.links.backward[rows]]
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for row in rows[np.argsort(events.start[rows], kind="stable")].tolist():
        if (columns := columns_of(Arguments(facts.timeline.inputs_of(row)))) is not None:
            by_shape.setdefault(columns, []).append(row)
    found: list[int] = []
    for columns, mine in by_shape.items():
        of = reading(facts, columns)
        for row, following in zip(mine, [*mine[1:], None], strict=True):
            until = None if following is None else int(events.start[following])
            readers = {facts.timeline.name_of(one) for one in read_behind(facts, row, of, until)}
            found += [row] if readers and readers <= PRODUCTS else []
    if not found:
        return None
    below = list(found)
    for one in below:
        below += called_by(facts, one)
    window = Arguments(facts.timeline.inputs_of(found[0])).numbers(1) or [1]
    return UnfoldedImages(found[0], math.prod(window), np.concatenate(passes(facts).atoms_of(below)))
