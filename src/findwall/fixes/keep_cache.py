"""Let the allocator keep its memory: no empty_cache in the loop, and segments that can grow.

What it does:
torch keeps freed device memory and hands it out again in microseconds. `torch.cuda.empty_cache()`
gives it back to the driver, so that the next step has to fetch it again with cudaMalloc and
cudaFree, which stop the whole device. Without the call the cache stays. Where sizes change from
step to step, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` lets segments grow instead of being
replaced.

When it does not help:
No cudaMalloc or cudaFree happens in the step: the cache already serves it. The first steps always
allocate; that is warm-up.

Risk:
None for the results. Another process on the same GPU gets none of the memory back.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.device_time import matching
from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, listed
from findwall.attribute.waits import in_window
from findwall.fixes import Fix, NoUse, Outcome, use
from findwall.model.events import Kind
from findwall.structure.host import ALLOCATOR

MOVES = ("allocator",)
CALLS_NAMED = 3  # in one sentence


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("allocator")
    if spent <= 0:
        return NoUse("the allocator serves every request of the step from its cache")
    calls = _calls(facts)
    freed = sum(count for name, count in calls.items() if "Free" in name or "Unmap" in name)
    counted = listed([f"{count:,.0f} {name}" for name, count in calls.items()])
    first = (
        "Take `torch.cuda.empty_cache()` out of the loop" if freed else "Warm up with the largest batch first"
    )
    return use(
        f"{first}; where sizes change, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. "
        f"The device waits {a_step(spent)} for {f'{counted} calls' if counted else 'the allocator'}."
    )


def _calls(facts: Facts) -> dict[str, float]:
    """Calls to the driver's allocator, a step, most frequent first."""
    rows = in_window(facts, facts.timeline.rows(Kind.RUNTIME))
    rows = rows[matching(facts, rows, ALLOCATOR)]
    names, counts = np.unique(facts.timeline.events.name[rows], return_counts=True)
    found = {
        facts.timeline.names[int(name)]: count / facts.steps.count
        for name, count in zip(names.tolist(), counts.tolist(), strict=True)
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:CALLS_NAMED])


FIX = Fix(MOVES, "safe", advise)
