"""Do not send a model's buffers before every forward pass: `broadcast_buffers=False`.

What it does:
DistributedDataParallel sends the first rank's buffers (the running means and variances of batch norms, above
all) to all others before each forward pass in training. Each is a small collective that stands in front of
the pass. Most models do not need it: every rank keeps running statistics of its own batches, and only the
first rank's are saved.

    DistributedDataParallel(model, broadcast_buffers=False)

When it does not help:
The trace shows no broadcast in the forward pass, or computation hides them.

Risk:
Buffers differ from rank to rank. Where the model is evaluated on all ranks, send them once before that, or
use SyncBatchNorm, whose statistics are the same everywhere. Buffers that training changes and relies on must
agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.new_objects import after_made
from findwall.facts.collectives import buffers_sent
from findwall.fixes import Claim, Facts, Fix, Outcome, no_use, surely
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES, NOT_DATA_PARALLEL
from findwall.model.causes import cause_index
from findwall.patches.editor import Editor
from findwall.replay.change import Change, Drop
from findwall.units import ms

# What DistributedDataParallel takes without a name.
TAKES = ("module", "device_ids", "output_device", "dim", "broadcast_buffers")
MOVES = ("small-collectives", "exposed-collective")


def use(facts: Facts) -> Outcome:
    rows = buffers_sent(facts)
    if len(rows) == 0:
        return no_use("broadcast-buffers/none")
    mine = np.isin(facts.kernels.row[facts.atoms.index], rows)
    exposed = mine & np.isin(facts.atoms.cause, [cause_index(cause) for cause in MOVES])
    if facts.own[exposed].sum() <= 0:
        return no_use("broadcast-buffers/hidden")
    figures = {"calls": len(rows) / facts.steps.count, "sent_ms": ms(float(facts.own[mine].sum()))}
    return surely(Claim("broadcast-buffers/off", figures), Change((Drop(rows),)))


def apply(torch: Any, effect: Effect) -> None:
    """As the argument would, but for the first broadcast: all ranks begin with the same buffers."""

    def keep(model: Any) -> None:
        if not model.will_sync_module_buffers():
            effect.missed("no buffer would be sent before a forward pass")
            return
        model.broadcast_buffers = False
        if not model.will_sync_module_buffers():
            effect.saw(f"{len(model.modules_buffers)} buffers are not sent before a forward pass")
            effect.at("ranks", model, takes=TAKES)

    effect.missed("DistributedDataParallel wraps no model here")
    after_made("broadcast-buffers", torch.nn.parallel.DistributedDataParallel, effect.safely(keep))


def patch(editor: Editor) -> None:
    for place in editor.places("ranks"):
        trainer = {"transformers": {"ddp_broadcast_buffers": "False"}}
        editor.set_arguments(place, trainer, broadcast_buffers="False")


FIX = Fix(
    MOVES,
    "needs-review",
    use,
    (
        NO_COLLECTIVES,
        NOT_DATA_PARALLEL,
    ),
    apply=apply,
    patch=patch,
)
