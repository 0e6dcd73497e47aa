"""Let the allocator keep its memory: no empty_cache in the loop.

What it does:
torch keeps freed device memory and hands it out again in microseconds. `torch.cuda.empty_cache()`
gives it back to the driver, so that the next step has to fetch it again with cudaMalloc and
cudaFree, which stop the whole device. Without the call the cache stays.

When it does not help:
No cudaMalloc or cudaFree happens in the step: the cache already serves it. The first steps always
allocate; that is warm-up. Where sizes change from step to step nobody gives memory away, but no free piece
fits: expandable-segments.

Risk:
None for the results. Another process on the same GPU gets none of the memory back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.facts.op_shapes import shapes_change
from findwall.facts.waits import cache_switched_off, driver_calls, given_back
from findwall.fixes import Claim, Facts, Fix, Outcome, ideal, surely, unless
from findwall.fixes.refusals import CACHED
from findwall.patches.editor import Editor
from findwall.units import format_calls
from findwall.work.work_facts import WorkFacts


def use(facts: Facts) -> Outcome:
    calls = driver_calls(facts)
    figures = {"waits_ms": facts.spent_ms("allocator")}
    counted = [Claim("calls/of", {"calls": count}, {"call": name}) for name, count in calls.items()]
    names = {"command": cache_switched_off(facts) or ""}
    way = "switched-off" if names["command"] else "given-back" if given_back(calls) else "warm-up"
    return surely(Claim(f"keep-cache/{way}", figures, names, parts=counted), ideal(facts, "allocator"))


def _sizes_change(facts: WorkFacts) -> bool:
    """And nothing gives memory back, nor keeps torch from keeping it."""
    changing = shapes_change(facts, np.arange(len(facts.atoms.index)))
    return bool(changing) and not given_back(driver_calls(facts)) and not cache_switched_off(facts)


def apply(torch: Any, effect: Effect) -> None:
    """Calls that would give the cache away do nothing."""
    skipped = 0

    def keep() -> None:
        nonlocal skipped
        skipped += 1
        effect.at("empty-cache")

    for home in (torch.cuda, torch.cuda.memory, getattr(torch, "accelerator", None)):
        if home is not None and hasattr(home, "empty_cache"):
            REGISTRY.wrap("keep-cache", home, "empty_cache", lambda _: keep, past_end=APPLIED)
    effect.at_end(lambda: f"skipped {format_calls(skipped)} of empty_cache" if skipped else "")


def patch(editor: Editor) -> None:
    for place in editor.places("empty-cache"):
        editor.remove_call(place)


FIX = Fix(
    ("allocator",),
    "safe",
    use,
    (CACHED, unless("keep-cache/sizes-change", _sizes_change)),
    apply=apply,
    live=apply,
    patch=patch,
)
