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

from findwall.attribute.conditions import SLOW_STEP_RATIO
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, told
from findwall.attribute.places import sampled, sampled_evidence
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.units import format_ms

CAUSE = "unstable-steps"


def evidence(facts: Facts) -> list[Evidence]:
    seconds = _seconds(facts)
    if len(seconds) < 2:
        return []
    median = float(np.median(seconds))
    slowest = np.argsort(-seconds, kind="stable")[:EVIDENCE_ROWS]
    found = [
        Evidence(
            f"step {at} of {len(seconds)} took {format_ms(float(seconds[at]) * 1e3)}, "
            f"{seconds[at] / median:.1f} times the median",
            ms=float(seconds[at]) * 1e3,
        )
        for at in slowest.tolist()
        if seconds[at] > SLOW_STEP_RATIO * median
    ]
    seen = sampled_evidence(facts)[:1]
    return [*found[: EVIDENCE_ROWS - len(seen)], *seen]


def sentence(facts: Facts) -> str:
    seconds = _seconds(facts)
    if len(seconds) < 2:
        return (
            "It is unknown whether steps are stable: none was timed without the profiler (`findwall run` "
            "times "
            "them)."
        )
    median = float(np.median(seconds))
    slow = int((seconds > SLOW_STEP_RATIO * median).sum())
    line = sampled(facts)
    where = ""
    if line is not None and line.share >= MAJORITY_SHARE:
        where = f"; the host was mostly at {line.place} ({line.function})"
    which = f"{slow} of {len(seconds)} steps that" if slow else "steps that came after these were timed, and"
    fact = (
        f"{opening(facts, CAUSE)} comes from {which} take more than {SLOW_STEP_RATIO:g} times the median of "
        f"{format_ms(median * 1e3)}{where}"
    )
    advice = "find out what happens in them (evaluation, saving, new shapes, other jobs) and move it out"
    return told(facts, CAUSE, fact, advice)


def _seconds(facts: Facts) -> np.ndarray:
    timed = facts.rank.step_times
    return np.array(timed.seconds if timed is not None else ())
