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
averages-in-lists (lists of tensors), foreach-checks where a loop goes over the gradients, builtin-ops instead
of formulas, vectorise-loop, scan-loop, batch-small-ops, group-experts and loop-on-device instead of Python
loops, cast-once where inference converts its weights in every step, where-not-mask, remove-sync (the host
must run ahead first), debug-off where anomaly mode was left on, linalg-route where a routine goes through a
batch one by one, omp-threads where the launching thread has to wait for a core, skip-unused-search where
DistributedDataParallel walks the graph in each pass.
Where much of it is forward work without gradients: evaluate-less-often.
"""

from __future__ import annotations

import numpy as np

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Facts, Figure, Told, lines
from findwall.facts.facts import too_small_share
from findwall.facts.host_loops import mostly_over_parts
from findwall.facts.step_traits import graph_share, is_compiled, on_cores
from findwall.facts.user_lines import line_of, sampled
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.model.catalogue import MAJORITY_SHARE, WORTH_IT
from findwall.model.events import Kind
from findwall.step.step_facts import StepFacts
from findwall.units import NS_PER_US, ms

NAME = "launch-bound"


def shows(facts: Facts) -> list[Evidence]:
    return [_pace(facts), *_ops(facts)]


def says(facts: Facts) -> Told:
    kernels, length = _kernels(facts)
    line = sampled(facts)
    waits = facts.reading.likely.idle[NAME] >= MAJORITY_SHARE * facts.spent()[NAME]
    places = lines(line.place) if line is not None and waits else []
    what = "launch-bound/one-by-one" if waits else "launch-bound/too-small"
    return Told(Claim(what, {"kernels": kernels, "each_us": length}, places=places), _advice(facts))


def _advice(facts: Facts) -> Claim:
    """What the job does not do already."""
    if mostly_over_parts(facts):
        # A trace does not tell a recurrence from it: no op says whose result it was given.
        return Claim("advise/batch-small-ops")
    rounds = waiting_rounds(facts)
    if rounds is not None and len(rounds.atoms) > MAJORITY_SHARE * len(facts.atoms.index):
        way = "group-experts" if rounds.multiplies else "loop-on-device"
        if way not in facts.refused:
            return Claim(f"advise/{way}")
    ways = []
    replayed = graph_share(facts) > MAJORITY_SHARE
    if not on_cores(facts) and not replayed and "cuda-graphs" not in facts.refused:
        ways.append("advise/cuda-graphs")
    merges = not is_compiled(facts) and (not replayed or too_small_share(facts) >= WORTH_IT)
    if merges and "torch-compile" not in facts.refused:
        ways.append("advise/torch-compile")
    if is_compiled(facts) and not replayed and "reduce-overhead" not in facts.refused:
        ways.append("advise/reduce-overhead")
    return Claim("launch-bound/ways", {"on_cores": on_cores(facts)}, parts=[Claim(way) for way in ways])


def _kernels(facts: StepFacts) -> tuple[float, float]:
    """Kernels a step, and their median length in microseconds; copies are none."""
    is_kernel = facts.timeline.events.kind[facts.queue.row] == Kind.KERNEL
    rows = (facts.queue.end - facts.queue.start)[is_kernel]
    return len(rows) / facts.steps.count, float(np.median(rows)) / NS_PER_US if len(rows) else 0.0


def _pace(facts: Facts) -> Evidence:
    kernels, length = _kernels(facts)
    figures: dict[str, Figure] = {
        "on_cores": on_cores(facts),
        "kernels": kernels,
        "each_us": length,
        "waits_us": facts.reading.likely.idle[NAME] / max(kernels, 1) / NS_PER_US,
        "turnaround_ms": facts.turnaround_ms,
    }
    return Evidence(claim=Claim("evidence/pace", figures))


def _ops(facts: Facts) -> list[Evidence]:
    """The ops whose launches the device waited for longest."""
    positions, amounts_ns = facts.idle_rows(NAME)
    total: dict[str, float] = {}
    times: dict[str, int] = {}
    first: dict[str, int] = {}
    for row, amount in zip(facts.queue.row[positions].tolist(), amounts_ns.tolist(), strict=True):
        op = int(facts.links.op[row])
        if op < 0:
            continue
        name = facts.timeline.name_of(op)
        total[name] = total.get(name, 0.0) + amount
        times[name] = times.get(name, 0) + 1
        first.setdefault(name, op)  # the longest gap comes first
    found = []
    for name in sorted(total, key=lambda one: (-total[one], one))[: EVIDENCE_ROWS - 1]:
        line = line_of(facts, first[name])
        often = times[name] / facts.steps.count
        waited = Claim("evidence/launches", {"times": often}, {"op": name}, lines(line))
        found.append(Evidence("", None, name, line, ms(total[name]), waited))
    return found


CAUSE = Cause(NAME, says, shows)
