"""torch asks the driver for memory, or gives it back, inside the step.

What it finds:
Idle time in cudaMalloc, cudaFree and their kin, and after frees, which wait for the whole device.

Why it costs:
torch keeps freed memory in its own cache because the driver is slow: a cudaFree waits until the device
has finished everything, a cudaMalloc takes up to milliseconds. In a steady step there should be none.

How it is told apart:
By the runtime calls themselves. The gaps after a free exist only because it drained the queue, and
belong to it (the queue is run again without it). A first step is full of these calls: they are warm-up,
not the job.

What helps:
keep-cache: no torch.cuda.empty_cache() in the loop, no PYTORCH_NO_CUDA_MEMORY_CACHING in the
environment. expandable-segments where sizes change (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True). A
little free memory (retries free the whole cache), static-shapes so that sizes repeat, pinned buffers made
once.
"""

from __future__ import annotations

from findwall.causes import Cause, Evidence, Facts, Told, Wait, wait_evidence, waits
from findwall.facts.waits import cache_switched_off, driver_calls, given_back, rows_named
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import Claim, Figure, lines, plain
from findwall.model.events import Kind
from findwall.step.call_names import ALLOCATOR
from findwall.step.step_facts import StepFacts


def shows(facts: Facts) -> list[Evidence]:
    return wait_evidence(_calls(facts))


def says(facts: Facts) -> Told:
    calls = driver_calls(facts)
    frees = given_back(calls)
    asked = sum(calls.values()) - frees
    figures: dict[str, Figure] = {}
    if asked > 0 or not frees:
        figures["asked_times"] = asked
    if frees > 0:
        figures["freed_times"] = frees
    line = next((wait.line for wait in _calls(facts) if wait.line), None)
    return Told(Claim("allocator/calls", figures, places=lines(line)), _advice(facts, frees))


def _advice(facts: StepFacts, frees: float) -> Claim:
    if switch_on := cache_switched_off(facts):
        return Claim("advise/keep-cache/switched-off", parts=[plain(switch_on)])
    if frees >= MAJORITY_SHARE:
        return Claim("advise/keep-cache")
    return Claim("advise/expandable-segments")


def _calls(facts: Facts) -> list[Wait]:
    return waits(facts, "allocator", rows_named(facts, ALLOCATOR, Kind.RUNTIME))


CAUSE = Cause("allocator", says, shows)
