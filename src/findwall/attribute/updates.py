"""What of an unfused optimizer's traffic a fused one would keep."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from findwall.attribute.workmodel.owners import op_work
from findwall.model.events import Timeline
from findwall.model.intervals import I64
from findwall.structure.steps import optimizers

# Bytes an element that a fused step must move (in units of one parameter), and that the unfused
# default moves: reads and writes of parameter, gradient and states.
TRAFFIC: dict[str, tuple[float, float]] = {
    "adam": (7, 20),
    "adamw": (7, 22),
    "nadam": (7, 24),
    "radam": (7, 24),
    "adamax": (7, 18),
    "lamb": (7, 24),
    "rmsprop": (5, 14),
    "adagrad": (5, 12),
    "sgd": (5, 8),
    "lion": (5, 12),
}
# The least of an optimizer nobody knows: parameter, gradient and one state read, parameter and state written.
LEAST = 5.0


def kept_share(timeline: Timeline, ops: I64) -> float | None:
    """What it must move by its name, and does by how often its ops go through memory, where that is recorded.
    `ops`: those of its kernels."""
    passes = _passes(timeline, ops)
    for name in optimizers(timeline):
        must, does = TRAFFIC.get(_known(name), (0.0, 0.0))
        if does:
            recorded = passes is not None and must <= passes
            return must / (passes if passes is not None and recorded else does)
    return None if passes is None else min(LEAST / passes, 1.0)


def _known(name: str) -> str:
    """The longest known name inside it: people call their own PaperAdamW or AdamWScheduleFree."""
    found = [known for known in TRAFFIC if known in name.lower()]
    return max(found, key=len, default="")


def _passes(timeline: Timeline, ops: I64) -> float | None:
    """How often the update reads or writes a tensor as long as its parameters.

    The op that writes least is called once for each parameter: what it writes is as long as they are.
    """
    moved = 0.0
    written: defaultdict[str, float] = defaultdict(float)
    for op in np.unique(ops[ops >= 0]).tolist():
        name = timeline.name_of(op)
        work = op_work(name, timeline.inputs_of(op))
        if work is not None and work.write_bytes > 0:
            moved += work.read_bytes + work.write_bytes
            written[name] += work.write_bytes
    return moved / min(written.values()) if written else None
