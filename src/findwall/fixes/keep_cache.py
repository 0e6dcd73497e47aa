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

from findwall.attribute.driver_memory import cache_switched_off, driver_calls, given_back
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, calls_text, listed
from findwall.attribute.shapes import shapes_change
from findwall.attribute.whatif import ideal
from findwall.fixes import Fix, NoUse, Outcome, surely
from findwall.measure.applying import Effect
from findwall.patches.editor import Editor

MOVES = ("allocator",)
CALLS_NAMED = 3  # in one sentence


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("allocator")
    if spent <= 0:
        return NoUse("the allocator serves every request of the step from its cache")
    calls = driver_calls(facts)
    changing = shapes_change(facts, np.arange(len(facts.atoms.index)))
    if changing and not given_back(calls) and not cache_switched_off(facts):
        return NoUse("nothing gives memory back: sizes change, and no free piece fits")
    counted = listed([f"{count:,.0f} {name}" for name, count in list(calls.items())[:CALLS_NAMED]])
    return surely(
        f"{_way(facts, calls)}. "
        f"The device waits {a_step(spent)} for {f'{counted} calls' if counted else 'the allocator'}.",
        ideal(facts, *MOVES),
    )


def _way(facts: Facts, calls: dict[str, float]) -> str:
    """What keeps the memory, by what gives it away."""
    if switch_on := cache_switched_off(facts):
        return f"Keep torch's cache of memory, which the environment switches off: `{switch_on}`"
    if given_back(calls):
        return "Take `torch.cuda.empty_cache()` out of the loop"
    return "Warm up with the largest batch first, so that later steps find their memory"


def apply(torch: Any, effect: Effect) -> None:
    """Calls that would give the cache away do nothing."""
    skipped = 0

    def keep() -> None:
        nonlocal skipped
        skipped += 1
        effect.at("empty-cache")

    for home in (torch.cuda, torch.cuda.memory, getattr(torch, "accelerator", None)):
        if home is not None and hasattr(home, "empty_cache"):
            home.empty_cache = keep
    effect.at_end(lambda: f"skipped {calls_text(skipped)} of empty_cache" if skipped else "")


def patch(editor: Editor) -> None:
    for place in editor.places("empty-cache"):
        editor.remove_call(place)


FIX = Fix(MOVES, "safe", advise, apply=apply, patch=patch)
