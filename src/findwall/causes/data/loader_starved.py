"""The device waits for the next batch: the data loader does not keep up.

What it finds:
Idle time while the training loop sits in the loader's `next`.

Why it costs:
Reading, decoding and transforming a batch takes longer than training on it. With no workers all of it
is added to the step; with workers it hides only as long as together they are faster than the step.

How it is told apart:
By the loader's ranges (all generations of their names) on the thread that launches kernels; under
`findwall run` also by the loader's own start, which comes at every epoch where workers are not kept. With
num_workers=0 the dataset's own ops are recorded too, so that the profiler stretches the loader; that is
taken off. The copy of the batch is copy-exposed. A job that makes its batches in the training loop by its own
code has no such range: where its tensors were followed, it is what no weight flows into in front of the pass.

What helps:
loader-workers (num_workers up to the cores, prefetch_factor=4), persistent-workers where each epoch starts
them again, lighter-samples (precomputed transforms, a format that reads in large pieces),
device-side-preprocessing (decoding and augmenting on the GPU), omp-threads where the workers' threads fight
for the cores.
"""

from __future__ import annotations

from findwall.causes import Cause, Claim, Evidence, Facts, Figures, Told, Wait, lines, wait_evidence, waits
from findwall.facts.figures import restarts
from findwall.facts.host_cores import cores_of, uses_threads, workers_needed
from findwall.facts.user_lines import LINES_SHOWN, sampled_evidence
from findwall.facts.waits import rows_named
from findwall.model.events import Kind
from findwall.step.host_activity import LOADER

BY_ITSELF = Claim("loader/by-itself")


def shows(facts: Facts) -> list[Evidence]:
    if facts.by_hand is not None:
        spent = facts.spent_ms("loader-starved")
        claim = Claim("evidence/by-hand", {"waits_ms": spent}, places=[*facts.by_hand.lines[:LINES_SHOWN]])
        return [Evidence(line=next(iter(facts.by_hand.lines), None), ms=spent, claim=claim)]
    found = wait_evidence(_calls(facts))
    timed = facts.rank.step_times
    if timed is not None and timed.loader_s is not None:
        waited = timed.loader_s * 1e3
        found.append(Evidence(ms=waited, claim=Claim("evidence/loader", {"waits_ms": waited})))
    return found + sampled_evidence(facts)


def says(facts: Facts) -> Told:
    if facts.by_hand is not None:
        found = Claim("loader-starved/waits", places=[*facts.by_hand.lines[:1]], parts=[BY_ITSELF])
        return Told(found, Claim("advise/lighter-samples/by-hand"))
    calls = _calls(facts)
    places = lines(next((wait.line for wait in calls if wait.line), None))
    why, advice = _why(facts, calls)
    return Told(Claim("loader-starved/waits", places=places, parts=[why]), advice, named=restarts(facts))


def _why(facts: Facts, calls: list[Wait]) -> tuple[Claim, Claim]:
    """What is wrong with the loader, and what to do about it."""
    have, again = facts.rank.loader_workers, restarts(facts)
    if again is not None:
        often: Figures = {"every": again.every, "steps_share": again.share, "long_ms": again.mean * 1e3}
        return Claim("loader/restarts", often), Claim("advise/persistent-workers")
    if have == 0 or any("SingleProcess" in wait.call for wait in calls):
        if "loader-workers" in facts.refused:
            return BY_ITSELF, Claim("advise/lighter-samples")
        return BY_ITSELF, Claim("advise/loader-workers/first", _workers(facts, 0))
    if have or any("MultiProcess" in wait.call for wait in calls):
        cores = cores_of(facts)
        if have and cores and have >= cores:
            return Claim("loader/too-slow", {"have": have, "cores": cores}), Claim("advise/lighter-samples")
        more = Claim("advise/loader-workers/more", _workers(facts, have) if have else {})
        return Claim("loader/too-slow", {"have": have}), more
    return Claim("loader/cannot-keep-up"), Claim("advise/loader-workers")


def _workers(facts: Facts, have: int) -> Figures:
    """How many would keep up; as many as there are cores where nobody knows."""
    needed = workers_needed(facts, have)
    asked: Figures = {"as_cores": True} if needed is None else {"workers": needed}
    return {**asked, "threads": 1} if uses_threads(facts) and not have else asked


def _calls(facts: Facts) -> list[Wait]:
    return waits(facts, "loader-starved", rows_named(facts, LOADER, Kind.ANNOTATION, Kind.OP, Kind.PYTHON))


CAUSE = Cause("loader-starved", says, shows)
