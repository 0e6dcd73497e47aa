"""Let segments of device memory grow where sizes change: `expandable_segments:True`.

What it does:
torch asks the driver for memory in segments and hands out pieces of them. Where sizes change from step to
step, no free piece fits: new segments are fetched with cudaMalloc, and old ones are given back once memory
is short, each time with the whole device at a stop. A segment that can grow is extended instead:

    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py

A first step with the largest batch there will be, or lengths padded to a few sizes, have the same end.

When it does not help:
Sizes are the same in every step: then something gives the memory away (torch.cuda.empty_cache()), and it has
to be kept. Calls that allocate pinned memory of the host (cudaHostAlloc) are not meant either.

Risk:
None for the results. Memory that is shared with other processes (CUDA IPC) cannot lie in such segments in
older versions of torch.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.facts.op_shapes import shapes_change
from findwall.facts.waits import cache_switched_off, driver_calls
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, unclear_if, unless
from findwall.fixes.refusals import CACHED
from findwall.patches.editor import Editor
from findwall.step.step_facts import StepFacts
from findwall.work.work_facts import WorkFacts

SETTING = "expandable_segments:True"
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the second from torch 2.9 on
_FETCHES = re.compile(r"^(cuda|hip)Malloc(Async)?$")
_GROWS = re.compile(r"^(cu|hip)Mem(Map|Create|SetAccess)")


def use(facts: Facts) -> Outcome:
    figures = {"waits_ms": facts.spent_ms("allocator"), "calls": _called(facts, _FETCHES)}
    return Use(Claim("expandable-segments/switch-on", figures))


def _called(facts: StepFacts, names: re.Pattern[str]) -> float:
    """How often a step the driver is called by one of these names."""
    return sum(count for name, count in driver_calls(facts).items() if names.search(name))


def _sizes_change(facts: WorkFacts) -> bool | None:
    return shapes_change(facts, np.arange(len(facts.atoms.index)))


def apply(torch: Any, effect: Effect) -> None:
    """Beside what the job's environment sets, for this process and those it starts."""
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here")
        return
    if torch.cuda.is_initialized():
        effect.cannot("the allocator is in use already")
        return
    was = os.environ.get(VARIABLES[0]) or os.environ.get(VARIABLES[1]) or ""
    if "expandable_segments" in was:
        effect.cannot(f"the environment sets it already: {was}")
        return
    settings = ",".join(one for one in (was, SETTING) if one)
    for name in VARIABLES:
        os.environ[name] = settings
    # Versions that read the environment when they are imported have done so by now.
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (change or torch.cuda.memory._set_allocator_settings)(settings)
    REGISTRY.hold("expandable-segments", f"os.environ: {VARIABLES[0]}", None, past_end=APPLIED)
    effect.at("script", value=settings)
    effect.at_end(lambda: _growing(torch))


def _growing(torch: Any) -> str:
    """Segments as the allocator itself describes them."""
    segments = torch.cuda.memory_snapshot() if torch.cuda.is_initialized() else []
    growing = sum(bool(one.get("is_expandable")) for one in segments)
    return f"{growing} of {len(segments)} segments can grow" if growing else ""


def patch(editor: Editor) -> None:
    """Before torch is imported: versions read it then."""
    place = editor.places("script")[0]
    lines = [f'os.environ["{name}"] = "{place.value}"' for name in VARIABLES]
    editor.file(place.spots[-1].file).before_imports("import os", "", *lines)


FIX = Fix(
    ("allocator",),
    "safe",
    use,
    (
        CACHED,
        unless("expandable-segments/no-cache", lambda facts: cache_switched_off(facts) is not None),
        unless("expandable-segments/already", lambda facts: _called(facts, _GROWS) > 0),
        unless("expandable-segments/fetches-none", lambda facts: _called(facts, _FETCHES) <= 0),
        unclear_if("expandable-segments/no-shapes", lambda facts: _sizes_change(facts) is None),
        unless("expandable-segments/same-sizes", lambda facts: not _sizes_change(facts)),
    ),
    apply=apply,
    patch=patch,
)
