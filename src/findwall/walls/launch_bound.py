"""The host issues ops slower than the device runs them, or kernels are too small to matter.

What it finds:
Gaps in which ops were being issued one by one while the device sat idle, the device's own turn-around
between queued kernels, and matmuls too small to use the device.

Why it costs:
Each launch costs the host several microseconds in Python, the dispatcher and the driver, whatever the
kernel behind it does. When kernels are shorter than that the queue runs empty.

How it is told apart:
A gap is given to a blocking call, the loader, the allocator or the compiler first; host-work takes
stretches without any op. What is left, ops being issued, is launch-bound. Half the batch would take
the same time. A profiler stretches exactly this, so its cost for each recorded host event is taken off;
only a step timed without the profiler (--step-ms) settles close cases. Turn-around is the device's own
and not recoverable by the host.

What helps:
cuda-graphs (the whole sequence in one launch), torch-compile (fewer, larger kernels; mode="reduce-overhead"
adds graphs), larger-batch (the same launches carry more work), fused-optimizer, foreach-optimizer and
averages-in-lists (lists of tensors), builtin-ops instead of formulas, vectorise-loop and batch-small-ops
instead of Python loops, remove-sync (the host must run ahead first), omp-threads where the launching thread
has to wait for a core.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

import numpy as np

from findwall.attribute.carriers import kernel_evidence
from findwall.attribute.device_kind import on_cores, pieces
from findwall.attribute.device_time import too_small_share
from findwall.attribute.facts import Facts
from findwall.attribute.figures import opening, times_text, told, waiting
from findwall.attribute.job import graph_share, is_compiled
from findwall.attribute.parts import mostly_over_parts
from findwall.attribute.places import line_of, sampled
from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.model.events import Kind
from findwall.units import NS_PER_US, format_ms, ms

CAUSE = "launch-bound"
LEAST_SHOWN_US = 0.1  # one digit is printed: less would read as no work at all


def evidence(facts: Facts) -> list[Evidence]:
    found = [_pace(facts), *_ops(facts)]
    if len(found) < EVIDENCE_ROWS:
        found += kernel_evidence(facts, CAUSE)
    return found[:EVIDENCE_ROWS]


def sentence(facts: Facts) -> str:
    kernels, length = _kernels(facts)
    line = sampled(facts)
    where = f", most often at {line.place}" if line is not None else ""
    size = f"Half of them hold at most {max(length, LEAST_SHOWN_US):.1f} us of work"
    fact = f"{waiting(facts, CAUSE)} while the host issues {kernels:,.0f} {pieces(facts)} one by one{where}"
    if facts.reading.likely.idle[CAUSE] < MAJORITY_SHARE * facts.spent()[CAUSE]:
        fact = f"{opening(facts, CAUSE)} goes to {kernels:,.0f} {pieces(facts)} too small to use the device"
    return told(facts, CAUSE, f"{fact}. {size}", _advice(facts))


def _advice(facts: Facts) -> str:
    """What the job does not do already."""
    if mostly_over_parts(facts):
        # A trace does not tell a recurrence from it: no op says whose result it was given.
        return "do in one call what a Python loop does part by part, if no round needs the one before"
    ways = []
    replayed = graph_share(facts) > MAJORITY_SHARE
    if not on_cores(facts) and not replayed and "cuda-graphs" not in facts.refused:
        ways.append("capture the step in a CUDA graph")
    merges = not is_compiled(facts) and (not replayed or too_small_share(facts) >= WORTH_IT)
    if merges and "torch-compile" not in facts.refused:
        ways.append("compile the model")
    if is_compiled(facts) and not replayed and "reduce-overhead" not in facts.refused:
        ways.append('compile with mode="reduce-overhead"')
    alone = f"give each {pieces(facts).removesuffix('s')} more work (a larger batch)"
    return f"{', '.join([*ways, 'or '])}{alone}" if ways else alone


def _kernels(facts: Facts) -> tuple[float, float]:
    """Kernels a step, and their median length in microseconds; copies are none."""
    is_kernel = facts.timeline.events.kind[facts.queue.row] == Kind.KERNEL
    rows = (facts.queue.end - facts.queue.start)[is_kernel]
    return len(rows) / facts.steps.count, float(np.median(rows)) / NS_PER_US if len(rows) else 0.0


def _pace(facts: Facts) -> Evidence:
    kernels, length = _kernels(facts)
    idle = facts.reading.likely.idle[CAUSE]
    each = idle / max(kernels, 1) / NS_PER_US
    text = (
        f"{kernels:,.0f} {pieces(facts)} per step, {length:.1f} us each (median); the device waits "
        f"{each:.1f} us for each; {format_ms(facts.turnaround_ms)} per step of that is its own turn-around"
    )
    return Evidence(text)


def _ops(facts: Facts, limit: int = EVIDENCE_ROWS - 1) -> list[Evidence]:
    """The ops whose launches the device waited for longest."""
    positions, amounts = facts.idle_rows(CAUSE)
    total: dict[str, float] = {}
    times: dict[str, int] = {}
    first: dict[str, int] = {}
    for row, amount in zip(facts.queue.row[positions].tolist(), amounts.tolist(), strict=True):
        op = int(facts.links.op[row])
        if op < 0:
            continue
        name = facts.timeline.name_of(op)
        total[name] = total.get(name, 0.0) + amount
        times[name] = times.get(name, 0) + 1
        first.setdefault(name, op)  # the longest gap comes first
    found = []
    for name in sorted(total, key=lambda one: (-total[one], one))[:limit]:
        line = line_of(facts, first[name])
        at = f" (longest at {line})" if line else ""
        text = f"{name}{at}: the device waited for it {times_text(times[name] / facts.steps.count)} per step"
        found.append(Evidence(text, None, name, line, ms(total[name])))
    return found
