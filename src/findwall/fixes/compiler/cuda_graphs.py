"""Record the step's launches once as a CUDA graph and replay them with one call.

What it does:
A graph holds kernels, their arguments and their order. Replaying it costs the host one call instead
of thousands, so that the device runs kernel after kernel however small they are. By hand with
`torch.cuda.CUDAGraph` (inference) or `torch.cuda.make_graphed_callables` (training), or by
`torch.compile(mode="reduce-overhead")`. Where Python itself is the wall of inference, a model can leave it
altogether: torch.export and AOTInductor make a library of it that a C++ runtime calls, TensorRT an engine.

When it does not help:
The device is busy anyway: a graph saves launches, not bytes or FLOPs. What synchronises inside the
region, allocates on the host or changes shape cannot be captured.

Risk:
Inputs and outputs live at fixed addresses: copy new data into them, and clone results that must
last. Shapes are fixed. The graph holds its memory as long as it lives.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.gains import launch_idle
from findwall.facts.host_loops import mostly_in_loops
from findwall.facts.user_lines import loops_in_python
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.facts.waits import common_sync
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    at_most,
    free_launches,
    is_compiled,
    is_training,
    small_kernels,
    step_ms,
    unless,
)
from findwall.fixes.refusals import ON_CORES, REPLAYED
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MENTION_SHARE, NEARLY_ALL, WORTH_IT
from findwall.replay.change import Change, HostWork, Ready, without
from findwall.work.work_facts import TOO_SMALL_NS, WorkFacts

# Python between two launches is not run at all when a graph of the whole step is replayed; a longer silence
# is work of its own that no graph holds, such as saving. Chosen by hand, not calibrated.
PYTHON_BETWEEN_LAUNCHES_NS = 5_000_000.0
# Between two kernels of a graph. Measured on an H200: 64 pairs of a small product and a tanh take 367 us.
BETWEEN_KERNELS_NS = 600.0
NEVER_MS = 1e-6  # a nanosecond per step: a sum that should be nothing
NOT_CAPTURED = ("host-sync", "allocator", "recompilation")


def use(facts: Facts) -> Outcome:
    figures = {
        "trains": is_training(facts),
        "launches": small_kernels(facts),
        "waits_ms": launch_idle(facts),
        "sets_up": facts.spent_ms("recompilation") > MENTION_SHARE * step_ms(facts),
    }
    return Use(
        Claim("cuda-graphs/record", figures, {"sync": common_sync(facts) or ""}),
        _best(facts),
        after_others=_is_last(facts),
        likely=lambda made: captured(facts),
    )


def _is_last(facts: Facts) -> bool:
    """Whether something else comes first: a graph holds no waits, which are worth taking out by themselves
    where they cost much, nor sizes that decide what is launched next, nor other memory in every step; and
    of a loop it would hold every round, where a few calls do the same."""
    waits = (facts.recoverable_ms("host-sync") or 0.0) > WORTH_IT * step_ms(facts)
    # A graph reads the same memory again: what lies elsewhere in every step would have to be copied there.
    waits |= (facts.wandering or 0) > MAJORITY_SHARE * small_kernels(facts)
    # Python of the job's own that works between its ops makes what they read: no graph does that.
    works = facts.spent_ms("host-work") > FAIR_PART * step_ms(facts) and loops_in_python(facts)
    return waits or works or waiting_rounds(facts) is not None or mostly_in_loops(facts)


def _best(facts: WorkFacts) -> Change:
    """One launch and no Python between, kernel upon kernel. What cannot be captured is gone: waits, new
    memory, set-up for new shapes.

    A short kernel is mostly start-up, of which a graph hides a part: in two jobs of small kernels, captured
    as a whole, their time fell to 0.94 and 0.97 of what the trace had, which no bound may exceed."""
    atoms = np.flatnonzero(facts.kernels.duration[facts.atoms.index] <= TOO_SMALL_NS)
    return captured(facts, turn=0.0) + at_most(facts, atoms, NEARLY_ALL)


def captured(facts: WorkFacts, turn: float = BETWEEN_KERNELS_NS) -> Change:
    """One launch and no Python between; kernels take what they take today, one right after the other."""
    return (
        free_launches(facts)
        + sum((without(cause) for cause in NOT_CAPTURED), Change())
        + Change((HostWork("host-work", 0.0, PYTHON_BETWEEN_LAUNCHES_NS),))
        + Change((Ready(facts.queue.row, turn=turn),))
    )


FIX = Fix(
    ("launch-bound",),
    "needs-review",
    use,
    (
        ON_CORES,
        REPLAYED,
        unless("cuda-graphs/never-waits", lambda facts: launch_idle(facts) <= NEVER_MS),
        unless("cuda-graphs/compiled", is_compiled),
    ),
    tried=6,
    plainer=("torch-compile", "reduce-overhead"),
)
