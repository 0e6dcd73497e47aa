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
Look at what happens in the slow steps: evaluations (evaluate-less-often), checkpoints and logs
(move-io-off-step), collections
(freeze-gc), new shapes (static-shapes, or buffer-once for a cache that grows), clocks (raise-clocks), loader
hiccups, another job on the same GPU.
"""

from __future__ import annotations

import numpy as np

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Figures, Told
from findwall.facts.user_lines import sampled, sampled_evidence
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.step.step_facts import StepFacts
from findwall.step.timed_steps import SLOW_STEP_RATIO


def shows(facts: StepFacts) -> list[Evidence]:
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
    figures = {"step": at, "steps": len(seconds), "took_ms": took, "ratio": float(seconds[at] / median)}
    return Evidence(ms=took, claim=Claim("evidence/slow-step", figures))


def says(facts: StepFacts) -> Told | Claim:
    seconds = _seconds(facts)
    if len(seconds) < 2:
        return Claim("unstable-steps/unknown")
    median = float(np.median(seconds))
    figures: Figures = {
        "slow": int((seconds > SLOW_STEP_RATIO * median).sum()),
        "steps": len(seconds),
        "ratio": SLOW_STEP_RATIO,
        "median_ms": median * 1e3,
    }
    line, look = sampled(facts), Claim("unstable-steps/look")
    if line is None or line.share < MAJORITY_SHARE:
        return Told(Claim("unstable-steps/slow", figures), look)
    return Told(Claim("unstable-steps/slow", figures, {"function": line.function}, [line.place]), look)


def _seconds(facts: StepFacts) -> np.ndarray:
    timed = facts.rank.step_times
    return np.array(timed.seconds if timed is not None else ())


CAUSE = Cause("unstable-steps", says, shows)
