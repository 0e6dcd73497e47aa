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
taken off. The copy of the batch is copy-exposed.

What helps:
loader-workers (num_workers up to the cores, prefetch_factor=4), persistent-workers where each epoch starts
them again, lighter-samples (precomputed transforms, a format that reads in large pieces),
device-side-preprocessing (decoding and augmenting on the GPU), omp-threads where the workers' threads fight
for the cores.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.figures import told, waiting
from findwall.attribute.kinds_told import often_text, restarts
from findwall.attribute.loader import cores_of, saved_without_loader, workers_text
from findwall.attribute.places import sampled_evidence
from findwall.attribute.waits import Wait, rows_named, wait_evidence, waits
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.model.events import Kind
from findwall.structure.host import LOADER
from findwall.units import format_ms

CAUSE = "loader-starved"


def evidence(facts: Facts) -> list[Evidence]:
    found = wait_evidence(_calls(facts))
    timed = facts.rank.step_times
    if timed is not None and timed.loader_s is not None:
        waited = timed.loader_s * 1e3
        text = f"without the profiler the loop waited {format_ms(waited)} per step for the loader"
        found.append(Evidence(text, ms=waited))
    return (found + sampled_evidence(facts))[:EVIDENCE_ROWS]


def sentence(facts: Facts) -> str:
    calls = _calls(facts)
    where = next((f" at {wait.line}" for wait in calls if wait.line), "")
    why, advice = _why(facts, calls)
    fact = f"{waiting(facts, CAUSE)} for the next batch{where} because {why}"
    return told(facts, CAUSE, fact, advice, saved_without_loader(facts))


def _why(facts: Facts, calls: list[Wait]) -> tuple[str, str]:
    """What is wrong with the loader, and what to do about it."""
    workers = facts.rank.loader_workers
    again = restarts(facts)
    if again is not None:
        return (
            f"its workers restart in {often_text(again)}, which takes {format_ms(again.mean * 1e3)}",
            "keep them alive (persistent_workers=True)",
        )
    if workers == 0 or any("SingleProcess" in wait.call for wait in calls):
        return (
            "the training process makes it itself",
            f"give the DataLoader workers ({workers_text(facts, 0)}, persistent_workers=True)",
        )
    if workers or any("MultiProcess" in wait.call for wait in calls):
        many = f"its {workers} workers" if workers else "its workers"
        have = "its one worker" if workers == 1 else many
        cores = cores_of(facts)
        if workers and cores and workers >= cores:
            return f"{have} cannot keep up on {cores} cores", "make the transforms cheaper"
        more = f"add workers ({workers_text(facts, workers)})" if workers else "add workers"
        return f"{have} cannot keep up", f"{more}, or make the transforms cheaper"
    return (
        "the loader cannot keep up",
        "give it workers (num_workers), or make the transforms cheaper",
    )


def _calls(facts: Facts) -> list[Wait]:
    return waits(facts, CAUSE, rows_named(facts, LOADER, Kind.ANNOTATION, Kind.OP, Kind.PYTHON))
