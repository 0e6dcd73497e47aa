"""Switch off what is there to find faults: anomaly mode, blocking launches, deterministic algorithms.

What it does:
Autograd's anomaly mode keeps a traceback for every op of the forward pass, and looks for NaN behind every op
of the backward pass: two kernels and a wait each. `CUDA_LAUNCH_BLOCKING=1` makes the host wait for every
kernel. Deterministic algorithms are slower wherever sums are added by atomics. All of them are for finding
a fault, and stay on after it was found:

    torch.autograd.set_detect_anomaly(False)

Anomaly mode and blocking launches come before any other change: what a job takes with them says little of
what it takes.

When it does not help:
Where the result must be the same bit by bit from run to run, deterministic algorithms are what was asked for.

Risk:
None for the results, but that sums may be added in another order from run to run. A NaN is found later, where
the job itself looks for it.
"""

from __future__ import annotations

import numpy as np

from findwall.facts.waits import anomaly_checks
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, ideal, no_use, rows_of
from findwall.model.intervals import I64
from findwall.replay.change import Change, Drop, Launch, NoWait
from findwall.step.links import runs_in

WAITS = ("host-sync", "launch-bound")
HOST = (*WAITS, "host-work")
KERNELS = ("slow-kernels", "gather-scatter")
# Of what it takes to issue an op with its traceback, what is left without: likely, and at best. Chosen by
# hand.
LIKELY, BARE = 0.55, 0.3
BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING")
DETERMINISTIC = ("deterministic", "cudnn-deterministic")


def use(facts: Facts) -> Outcome:
    asked = anomaly_checks(facts)
    if len(asked):
        return _without_anomaly_mode(facts, asked)
    found = {one.id for one in facts.run.environment.findings}
    if not found.isdisjoint(BLOCKING):
        return Use(Claim("debug-off/blocking"), ideal(facts, *WAITS), WAITS, before_others=True)
    if not found.isdisjoint(DETERMINISTIC):
        return Use(Claim("debug-off/deterministic"), moves=KERNELS, condition="same-bits-not-needed")
    return no_use("debug-off/none")


def _without_anomaly_mode(facts: Facts, asked: I64) -> Outcome:
    inside = runs_in(facts.timeline, facts.links, asked) >= 0
    launch = facts.links.launch[facts.kernels.row[facts.atoms.index]]
    checks = (launch >= 0) & inside[np.maximum(launch, 0)]
    op = facts.kernels.op[facts.atoms.index]
    forward = rows_of(facts, np.flatnonzero((op >= 0) & ~facts.links.backward[np.maximum(op, 0)] & ~checks))
    # Nobody looks and nobody waits. How long a traceback takes no trace tells: next to nothing, or most of
    # what issuing an op does.
    gone = Change((Drop(rows_of(facts, np.flatnonzero(checks))), NoWait(calls=np.flatnonzero(inside))))
    bare = gone + Change((Launch(forward, BARE),))
    return Use(
        Claim("debug-off/anomaly", {"checks": len(asked) / facts.steps.count}),
        gone + ideal(facts, *HOST),
        HOST,
        before_others=True,
        likely=lambda made: gone + Change((Launch(forward, LIKELY),)),
        may=(lambda made: bare, lambda made: gone),
        uncurved=True,
    )


FIX = Fix((*HOST, *KERNELS), "safe", use)
