"""Averages of the weights that a job keeps beside its optimizer, tensor after tensor: EMA, SWA.

Told by when and on what: after the optimizer's step and before the next forward pass, ops change tensors in
place that have the shapes of the parameters, of most of them. From the first op on such tensors to the last
change all is the average: its arithmetic, and copies, as of a counter from the host.
"""

from __future__ import annotations

import re

import numpy as np

from findwall.attribute.device_time import of_class
from findwall.attribute.facts import Facts, found_once
from findwall.attribute.recorded import backward_starts
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES
from findwall.model.events import Bool, Kind
from findwall.model.intervals import I64
from findwall.structure.host import rows_matching
from findwall.structure.parameter_updates import between_passes, on_shapes, parameter_shapes
from findwall.structure.steps import OPTIMIZER_STEP

# Changes that mix something in: gradients that are zeroed and weights that are clipped are no averages.
_MIXES = re.compile(r"^aten::(copy|lerp|add|sub|addcmul)_$")


@found_once
def averages(facts: Facts) -> I64:
    """The atoms of it, if there is one."""
    timeline, links = facts.timeline, facts.links
    atoms = np.flatnonzero(~of_class(facts, "optimizer", *MATRIX_CLASSES))
    rows = facts.kernels.row[facts.atoms.index[atoms]]
    ops = np.unique(links.op[rows])
    ops = ops[ops >= 0]
    ops = ops[_behind_optimizer(facts, ops)]
    wanted = parameter_shapes(timeline)
    if len(ops) == 0 or not wanted:
        return np.zeros(0, np.int64)
    window = between_passes(timeline, links, ops)
    ops, window = ops[window >= 0], window[window >= 0]
    on_weights, changed = on_shapes(timeline, ops, wanted)
    changes = on_weights & timeline.named(_MIXES, ops)[timeline.events.name[ops]]
    covered = {shape for shape, one in zip(changed, changes.tolist(), strict=True) if one} & wanted
    if len(covered) <= MAJORITY_SHARE * len(wanted):
        return np.zeros(0, np.int64)
    at, windows = timeline.events.start[ops], int(window.max()) + 1
    first, last = np.full(windows, np.iinfo(np.int64).max), np.full(windows, -1, np.int64)
    np.minimum.at(first, window[on_weights], at[on_weights])
    np.maximum.at(last, window[changes], at[changes])
    found: I64 = atoms[np.isin(links.op[rows], ops[(at >= first[window]) & (at <= last[window])])]
    return found


def _behind_optimizer(facts: Facts, ops: I64) -> Bool:
    """Which of these come after an optimizer's step, with no backward pass between: clipping is not one."""
    events = facts.timeline.events
    ranges = rows_matching(facts.timeline, facts.timeline.rows(Kind.ANNOTATION, Kind.OP), OPTIMIZER_STEP)
    ends = np.sort(events.end[ranges])
    engine = backward_starts(facts)
    at = events.start[ops]
    done = np.append(-1, ends)[np.searchsorted(ends, at, side="right")]
    found: Bool = done > np.append(-1, engine)[np.searchsorted(engine, at)]
    return found
