"""Send images over the link as the bytes they were, and make numbers of them on the device.

What it does:
A pixel is a byte. Made a float on the host it takes four on the way to the device, and the host's time to
make it. Sent as uint8, from pinned memory, and scaled there it is a quarter of the copy:

    frames = torch.from_numpy(bytes_hwc).pin_memory()                   # uint8
    x = frames.to(device, non_blocking=True).float()                    # then: .sub_(mean).div_(std)

When it does not help:
The copies are hidden behind other work, or the numbers were never bytes: measured values, audio, features.

Risk:
Scaling happens on the device, in its own rounding. Augmentations that the host made on floats have to move
too, or work on bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from findwall.facts.memory_copies import link_rate, uploaded
from findwall.facts.user_lines import line_of
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, cannot_tell, lines, no_use
from findwall.fixes.loader.loader_refusals import COPIES_HIDDEN, COPIES_ON_CORES
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import F64, I64
from findwall.replay.change import Change, Replace, without
from findwall.replay.curves import curves
from findwall.units import NS_PER_S
from findwall.work.op_arguments import Arguments, Tensor, is_floating
from findwall.work.work_facts import WorkFacts, moving_ns

COLOURS = 3  # numbers of a pixel: of one it may be any measured value
IMAGE_DIMS = 4
SMALLEST_SIDE = 16  # of an image: what is smaller may be anything


def plain(torch: Any, frames: Any, mean: Any, std: Any, device: str) -> Any:
    """As it is written today: floats on the host."""
    return ((frames.float() - mean) / std).to(device)


def cheaper(torch: Any, frames: Any, mean: Any, std: Any, device: str) -> Any:
    """Bytes over the link."""
    return (frames.to(device).float() - mean.to(device)) / std.to(device)


class _Copies(msgspec.Struct, frozen=True):
    rows: I64
    tensor: Tensor  # the largest
    op: int


def use(facts: Facts) -> Outcome:
    found = _images(facts)
    if found is None:
        return no_use("narrow-copies/none")
    events = facts.timeline.events
    mine, every = events.duration[found.rows].sum(), events.duration[uploaded(facts)].sum()
    if mine <= MAJORITY_SHARE * every:
        return no_use("narrow-copies/others")
    if not facts.ceilings.bandwidth:
        return cannot_tell("narrow-copies/unknown-device")
    pageable = bool(np.isin(found.rows, facts.queue.row[facts.queue.paced]).any())
    figures = {
        "copied_bytes": float(events.nbytes[found.rows].sum()) / facts.steps.count,
        "size": found.tensor.size,
        "waits_ms": facts.spent_ms("copy-exposed"),
        "pageable": pageable,
    }
    return Use(
        Claim("narrow-copies/bytes", figures, places=lines(line_of(facts, found.op))),
        after_others=pageable,  # pinned first: that needs no other type
        likely=lambda made: Change((Replace(found.rows, _ns(facts, found)),)) + without("copy-exposed"),
        condition="values-were-bytes",
    )


def _images(facts: WorkFacts) -> _Copies | None:
    """Copies of floats that look like images: of three numbers a pixel, first or last, clips too."""
    found, largest, at = [], None, -1
    for row in uploaded(facts).tolist():
        op = int(facts.links.op[row])
        tensor = Arguments(facts.timeline.inputs_of(op)).tensor(0) if op >= 0 else None
        if tensor is None or not _is_image(tensor) or facts.timeline.events.nbytes[row] <= 0:
            continue
        found.append(row)
        if largest is None or tensor.elements > largest.elements:
            largest, at = tensor, op
    return _Copies(np.array(found, np.int64), largest, at) if largest is not None else None


def _is_image(tensor: Tensor) -> bool:
    if len(tensor.dims) < IMAGE_DIMS or not is_floating(tensor.dtype):
        return False
    first = COLOURS in tensor.dims[1:-2] and min(tensor.dims[-2:]) >= SMALLEST_SIDE
    last = tensor.dims[-1] == COLOURS and min(tensor.dims[-3:-1]) >= SMALLEST_SIDE
    return first or last


def _ns(facts: WorkFacts, found: _Copies) -> F64:
    """The bytes at what the link carries, or what these copies reach today where that is more; then a pass
    that makes floats of them."""
    events = facts.timeline.events
    moved = events.nbytes[found.rows].astype(np.float64)
    today = moved / np.maximum(events.duration[found.rows], 1) * NS_PER_S
    rate = np.maximum(today, link_rate(facts) or 0.0)
    narrow = moved / found.tensor.size
    copied = narrow / rate * NS_PER_S
    floor = np.maximum(moving_ns(facts, moved + narrow), 1.0)
    made: F64 = curves().likely_ns("pointwise", floor)
    return copied + made


FIX = Fix(("copy-exposed",), "needs-review", use, (COPIES_ON_CORES, COPIES_HIDDEN))
