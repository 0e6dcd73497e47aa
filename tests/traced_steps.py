"""Steps that torch really runs on the CPU, traced while nobody takes the core away from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch

from findwall.model.events import Timeline
from findwall.readers import read_trace
from sketch import facts_of

RECORDINGS = 16  # at most, of the same steps
# Of the time that the steps take, what this process runs. Where others take more of it, an op is as long as
# they wish.
UNDISTURBED = 0.9


def traced_steps(step: Callable[[int], Any], folder: Path, steps: int = 3, **options: Any) -> Timeline:
    """Of several recordings the one that others disturbed least. A step that they made so long that it counts
    as warm-up is disturbed, too."""
    made: list[tuple[float, Timeline]] = []
    for _ in range(RECORDINGS):
        share, profiler = _recorded(step, steps, options)
        if share >= min(UNDISTURBED, max((one for one, _ in made), default=0.0)):
            profiler.export_chrome_trace(str(folder / "trace.json"))
            timeline = read_trace(folder / "trace.json")
            is_cold = facts_of(timeline, device_kind="cpu").whole.cold_ms
            made.append((-1.0 if is_cold else share, timeline))
        if made[-1][0] >= UNDISTURBED:
            break
    return max(made, key=lambda one: one[0])[1]


def _recorded(step: Callable[[int], Any], steps: int, options: dict[str, Any]) -> tuple[float, Any]:
    """With the share of the time in which this process ran."""
    with torch.profiler.profile(record_shapes=True, **options) as profiler:
        began, ran = perf_counter(), process_time()
        for number in range(steps):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step(number)
        return (process_time() - ran) / (perf_counter() - began), profiler
