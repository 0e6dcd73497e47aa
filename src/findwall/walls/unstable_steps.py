"""A few steps take much longer than the rest.

What it finds:
The time by which the mean step exceeds the median one, less what the loader and the garbage collector
account for, where step times spread widely.

Why it costs:
Throughput is set by the mean. A step that is ten times as long once in fifty costs a fifth, and a trace
of three steps will not show it.

How it is told apart:
From step times measured without the profiler; a trace alone cannot tell, since profiling itself makes
steps uneven. Waits in the loader are loader-starved and collections gc-pause even when they come in
bursts.

What helps:
Look at what happens in the slow steps: evaluation, checkpoints and logs (move-io-off-step), collections
(freeze-gc), new shapes (static-shapes), clocks (raise-clocks), loader hiccups, another job on the same GPU.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.facts import Facts
from findwall.attribute.figures import amounts, told
from findwall.attribute.places import sampled, sampled_evidence
from findwall.attribute.timed_steps import SLOW_STEP_RATIO
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import Claim, Figure
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence

CAUSE = "unstable-steps"


def evidence(facts: Facts) -> list[Evidence]:
    seconds = _seconds(facts)
    if len(seconds) < 2:
        return []
    median = float(np.median(seconds))
    slowest = np.argsort(-seconds, kind="stable")[:EVIDENCE_ROWS]
    found = [_shown(seconds, at, median) for at in slowest.tolist() if seconds[at] > SLOW_STEP_RATIO * median]
    seen = sampled_evidence(facts)[:1]
    return [*found[: EVIDENCE_ROWS - len(seen)], *seen]


def _shown(seconds: np.ndarray, at: int, median: float) -> Evidence:
    took = float(seconds[at]) * 1e3
    figures: dict[str, Figure] = {"step": at, "steps": len(seconds), "took_ms": took}
    return Evidence(
        ms=took, claim=Claim("evidence/slow-step", {**figures, "ratio": float(seconds[at] / median)})
    )


def claim(facts: Facts) -> Claim:
    seconds = _seconds(facts)
    if len(seconds) < 2:
        return Claim("unstable-steps/unknown")
    median = float(np.median(seconds))
    line = sampled(facts)
    at_line = line is not None and line.share >= MAJORITY_SHARE
    figures: dict[str, Figure] = {
        **amounts(facts, CAUSE),
        "slow": int((seconds > SLOW_STEP_RATIO * median).sum()),
        "steps": len(seconds),
        "ratio": SLOW_STEP_RATIO,
        "median_ms": median * 1e3,
    }
    names = {"function": line.function} if line is not None and at_line else {}
    places = [line.place] if line is not None and at_line else []
    return told(
        facts, CAUSE, Claim("unstable-steps/slow", figures, names, places), Claim("unstable-steps/look")
    )


def _seconds(facts: Facts) -> np.ndarray:
    timed = facts.rank.step_times
    return np.array(timed.seconds if timed is not None else ())
