"""How well the replay gives the true step, and whether any measured fix beats the replayed best.

    python benchmarks/replay.py [--out benchmarks/results/replay.json]

Jobs of known truth: the ones recorded for the tests, those kept aside (`kept_aside/`, written by somebody who
had not read the rules), and the zoo beside the project where it is there. For each: the replay calibrated to
the true step and what is left over; the same fitted on all steps but one and checked on that one, as it is
and against what that step took in the recording (host-bound steps differ from one to the next, and the true
step is the mean of many). Then every fix that was really made, against the replay of the fix at its best.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from findwall.examine import facts_of as examined
from findwall.facts.facts import Facts
from findwall.fixes import Use
from findwall.fixes.at_best import together_at_best
from findwall.fixes.what_if import outcomes_of
from findwall.machine.hardware import table_ceilings
from findwall.readers import open_run
from findwall.replay.build import build
from findwall.replay.calibrate import Calibration, fit, play_with
from findwall.replay.graph import Graph
from findwall.step.device_queue import line_up
from findwall.units import ms
from fix_names import FIX_OF

HERE = Path(__file__).resolve().parent
FOLDERS = {
    "zoo": HERE.parents[1] / "shared" / "zoo",
    "fixtures": HERE.parent / "tests" / "fixtures" / "jobs",
    "kept aside": HERE / "kept_aside" / "traces",
}
BEATEN = 1.03  # times the measured step: a best above that was beaten
# Measured under a name of `FIX_OF`, but as more than that fix does.
MORE_THAN_ONE_FIX = {
    ("slow_loader", "resident"): "no loader and no copy",
    ("pageable_both_ways", "pinned"): "the copies out are pinned too",
}


@dataclass(frozen=True)
class Job:
    """One job's replay against its truth. Errors are shares of the true step."""

    job: str
    true_ms: float
    spread: float
    replayed_ms: float
    error: float
    cost_us: float
    pace: float
    unseen_steps: tuple[float, ...]  # fitted on the others, checked on each
    unseen_relative: tuple[float, ...]  # the same, against what each step took in the recording
    nodes: int
    play_ms: float  # to play the graph once, all its repeats


@dataclass(frozen=True)
class Bound:
    """A fix that was really made, and the replay of it at its best."""

    job: str
    measured_as: str
    fix: str
    true_ms: float
    measured_ms: float
    spread: float
    best_ms: float | None  # None: not advised for this job
    beaten: bool  # by more than 3 %
    proven: bool  # and by more than the noise: the spread of the fix's blocks and the drift of the job


def truths(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if (folder / "truth.json").exists():
        for name, truth in json.loads((folder / "truth.json").read_text()).items():
            if (folder / f"{name}.json.gz").exists():
                yield folder / f"{name}.json.gz", truth


def facts_of(path: Path, step_ms: float | None) -> Facts:
    """With its true step time; None: as a run folder says, or as if nobody had timed the steps of a trace."""
    run = open_run([path])
    assert run.device_name is not None
    return examined(run, step_ms, table_ceilings(run.device_name))[0]


def judged(path: Path, truth: dict[str, Any], facts: Facts) -> Job:
    step = truth["step_ms"] * 1e6
    found = fit(facts.graph, step)
    raw, relative = unseen(facts, step)
    begin = time.perf_counter()
    play_with(facts.graph, found.calibration)
    return Job(
        job=path.name.removesuffix(".json.gz"),
        true_ms=truth["step_ms"],
        spread=truth["spread"],
        replayed_ms=round(ms(found.replay.step), 3),
        error=round(found.replay.step / step - 1, 4),
        cost_us=round(found.calibration.cost_us, 2),
        pace=round(found.calibration.pace, 3),
        unseen_steps=raw,
        unseen_relative=relative,
        nodes=len(facts.graph),
        play_ms=round(1e3 * (time.perf_counter() - begin), 2),
    )


def unseen(facts: Facts, step: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Errors of each step with the costs fitted on the others."""
    graphs = [only(facts, index) for index in range(facts.steps.count)]
    if len(graphs) < 2:
        return (), ()
    recorded = [play_with(graph, Calibration()).step for graph in graphs]
    whole = play_with(facts.graph, Calibration()).step
    raw, relative = [], []
    for index, graph in enumerate(graphs):
        others = [
            fit(one, step * recorded[at] / whole).calibration for at, one in enumerate(graphs) if at != index
        ]
        mean = Calibration(
            statistics.fmean(one.cost_us for one in others), statistics.fmean(one.pace for one in others)
        )
        played = play_with(graph, mean).step
        raw.append(round(played / step - 1, 4))
        relative.append(round(played / recorded[index] / (step / whole) - 1, 4))
    return tuple(raw), tuple(relative)


def only(facts: Facts, index: int) -> Graph:
    queue = line_up(facts.timeline, facts.links, facts.steps, only=index)
    return build(facts.timeline, facts.links, facts.host, queue)


def bounds(path: Path, truth: dict[str, Any], facts: Facts) -> Iterator[Bound]:
    job = path.name.removesuffix(".json.gz")
    for name, measured in truth["fixes"].items():
        if name not in FIX_OF or (job, name) in MORE_THAN_ONE_FIX:
            continue
        fixes = outcomes_of(facts, FIX_OF[name])
        uses = {one: outcome for one, outcome in fixes.items() if isinstance(outcome, Use)}
        best = round(ms(together_at_best(uses, facts)), 3) if len(uses) == len(fixes) else None
        spread = measured.get("spread") or 0.0
        # The unchanged job was timed again beside the fixes: how far it had drifted is noise as well.
        again = truth.get("between_fixes", truth)["step_ms"]
        noise = 1 + spread + abs(truth["step_ms"] / again - 1)
        beaten = best is not None and best > BEATEN * measured["step_ms"]
        proven = best is not None and beaten and best > noise * measured["step_ms"]
        yield Bound(
            job, name, FIX_OF[name], truth["step_ms"], measured["step_ms"], spread, best, beaten, proven
        )


HEAD = (
    "job",
    "true ms",
    "spread",
    "replayed",
    "error %",
    "µs an event",
    "pace",
    "unseen steps %",
    "relative %",
)


def table(title: str, jobs: list[Job], fixes: list[Bound]) -> None:
    print(f"\n{title}\n\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for one in jobs:
        cells = (one.job, f"{one.true_ms:.2f}", one.spread, f"{one.replayed_ms:.2f}", percents(one.error))
        cells += (one.cost_us, one.pace, percents(*one.unseen_steps), percents(*one.unseen_relative))
        print(f"| {' | '.join(map(str, cells))} |")
    worst = max(jobs, key=lambda one: abs(one.error))
    raw = mean(abs(error) for one in jobs for error in one.unseen_steps)
    relative = mean(abs(error) for one in jobs for error in one.unseen_relative)
    print(f"\nmean error {100 * mean(abs(one.error) for one in jobs):.2f} %, ", end="")
    print(f"worst {100 * abs(worst.error):.2f} % ({worst.job}); ", end="")
    print(f"unseen steps: mean {100 * raw:.1f} %, relative {100 * relative:.1f} %")
    known = [one for one in fixes if one.best_ms is not None]
    print(
        f"{sum(one.beaten for one in known)} of {len(known)} replayed bests beaten by more than 3 %", end=""
    )
    print(f", {sum(one.proven for one in known)} by more than the noise")
    for one in known:
        if one.beaten:
            print(f"  {one.job}/{one.measured_as}: best {one.best_ms:.2f}, ", end="")
            print(f"measured {one.measured_ms:.2f} (spread {one.spread:.2f})")


def percents(*shares: float) -> str:
    return " ".join(f"{100 * share:+.2f}" for share in shares)


def mean(values: Iterator[float]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for title, folder in FOLDERS.items():
        jobs: list[Job] = []
        fixes: list[Bound] = []
        for path, truth in truths(folder):
            facts = facts_of(path, truth["step_ms"])
            jobs.append(judged(path, truth, facts))
            fixes += bounds(path, truth, facts)
        if jobs:
            table(title, jobs, fixes)
            results[title] = {"jobs": [asdict(one) for one in jobs], "fixes": [asdict(one) for one in fixes]}
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
