"""Leave tensors where they are: no `.contiguous()`, `cat`, `clone` or permute that only moves data.

What it does:
A permuted tensor costs nothing until something wants it contiguous; then the whole of it is read
and written in another order. Choose one layout at the start (channels last for images; batch,
heads, sequence as the attention kernel wants it), write results into place (`out=`, slices of one
buffer) instead of concatenating, and let matmuls take transposed views, which they can.

When it does not help:
Copies are a small part of the step, a cache grows by them (buffer-once), or a library makes them
inside an op: then its input's layout is what to change (channels-last for convolutions).

Risk:
None for the results; views share memory, so check every write in place.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.cause_kernels import CARRIERS_SEARCHED, carriers, moves_on
from findwall.facts.memory_copies import appended, turned_by_library
from findwall.facts.op_shapes import shapes_text
from findwall.facts.user_lines import line_of
from findwall.facts.written_out.unfolded_images import unfolded_images
from findwall.fixes import Claim, Facts, Fix, Outcome, gone, is_training, lines, no_use, surely, time_of
from findwall.model.intervals import I64
from findwall.step.step_facts import StepFacts


def use(facts: Facts) -> Outcome:
    every = facts.atoms_of("layout-copies")
    unfolded = unfolded_images(facts)
    if unfolded is not None:  # what a product of columns is made of is no layout
        every = np.setdiff1d(every, unfolded.atoms)
    if time_of(facts, every) <= 0:
        return no_use("fewer-copies/none")
    own = np.setdiff1d(every, turned_by_library(facts))
    if time_of(facts, own) <= 0:
        return no_use("fewer-copies/by-library")
    if not is_training(facts):  # then a buffer takes those that grow, which are another change
        own = np.setdiff1d(own, appended(facts).atoms)
    spent = time_of(facts, own)
    if spent <= 0:
        return no_use("fewer-copies/appended")
    way = "in-place" if moves_on(facts) else "one-layout"
    return surely(
        Claim(f"fewer-copies/{way}", {"copies_ms": spent}, parts=_named(facts, own)), gone(facts, own)
    )


def _named(facts: Facts, own: I64) -> list[Claim]:
    """The longest copies that the job asks for, with their shapes and lines."""
    parts = []
    for one in carriers(facts, "layout-copies", CARRIERS_SEARCHED):
        if one.atom not in own:
            continue
        names = {"op": asked_for(facts, one.op_row) or one.op or ""}
        names["shape"] = shapes_text(facts, one.op_row, 1)
        parts.append(Claim("op/at", names=names, places=lines(line_of(facts, one.op_row))))
    return parts


def asked_for(facts: StepFacts, op_row: int) -> str | None:
    """The outermost library op around a copy: `aten::contiguous`, not the `copy_` inside it."""
    if op_row < 0:
        return None
    name = facts.timeline.name_of(op_row)
    for row in facts.links.ancestors(op_row):
        if not facts.timeline.name_of(row).startswith("aten::"):
            break
        name = facts.timeline.name_of(row)
    return name


FIX = Fix(("layout-copies",), "safe", use)
