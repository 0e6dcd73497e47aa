"""How near the predictions of fixes come to what was measured, job by job.

    python benchmarks/fixes.py [--out benchmarks/results/fixes.json] [--ship] [--only WORD]
    python benchmarks/fixes.py --runs FOLDER [FOLDER]       predictions of the jobs beside the project, kept

Every fix that was really made and timed, on the jobs whose traces are at hand: those recorded for the
tests, those kept aside, and the zoo beside the project where it is there; `pairs` are recorded jobs with
fixes that were made in at least three interleaved processes each (`fix_pairs.py`); `jobs` are those of
`../shared/jobs`, whose recordings are large: of them the predictions are kept (`results/job_pairs.json`, made
by `--runs` from folders that hold `run_JOB`, the first that has one counts). An error is the logarithm of
predicted over measured, less half the measurement's own spread, as the judge beside the project counts it.
Intervals are made with the job's whole family left out (`families.py`): from the errors that the fixes had on
jobs of other kinds. The last table is of the same traces as if nobody had timed their steps; nothing is
learned from it. `--ship` writes what findwall itself makes its intervals from, all jobs counted.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec

from families import family_of
from findwall.examine import facts_of as examined
from findwall.fixes import Use, all_fixes
from findwall.fixes.at_best import together_at_best
from findwall.fixes.predict import ERRORS, Errors, ends
from findwall.fixes.what_if import outcomes_of, parse
from findwall.model.diagnosis import Basis
from findwall.readers import open_run
from findwall.units import ms
from fix_names import FIX_OF
from replay import BEATEN, FOLDERS, MORE_THAN_ONE_FIX, facts_of, truths

HERE = Path(__file__).resolve().parent
PAIRS = HERE / "results" / "fix_pairs.json"
JOB_PAIRS = HERE / "results" / "job_pairs.json"
JOBS = HERE.parents[1] / "shared" / "jobs" / "truth.json"
RUN_FOLDERS = (HERE.parent / "tests" / "fixtures" / "resnet50_default",)
UNTIMED = "without a step time"  # the same traces, as if nobody had timed their steps
SHIPPED = HERE.parent / "src" / "findwall" / "fixes" / ERRORS
# Measured with 16-bit tensors or weights throughout, which autocast does not do.
NOT_AUTOCAST = {"pointwise_chain", "gnn_scatter", "hf_gpt2_generate"}
# Measured with the data on the device for good: a batch that is prefetched still passes over the link.
NEVER_COPIED = {"h2d_pageable", "pageable_batches"}
# Measured as something else: twelve workers whose libraries have a thread for every core each.
NOT_THE_SAME = {("asr_ctc", "loader-workers")}
# Timed for less than a second, while their workers had made dozens of batches before the first step.
FED_AHEAD = {"slow_loader"}
JUDGED_SPREAD = 0.06  # of a measured job, whose spread nobody told: the judge allows half of it either way
DRIFT = 0.05  # of the plain job between its recording and its fixes: beyond it the host was another
OVER = 0.34  # of an error: more than 40 %
COVERED = 0.90  # of the measurements: what an interval should hold
SMALL_CHANGE = 0.05  # a smaller predicted change says nothing about a share of it
PRIOR = 3.0  # families that all fixes together count for beside a fix's own
# Of a step between two processes, and besides of what the host decides of it. A plain step timed again
# beside its fixes was off by up to 0.009 on four jobs that wait for their device, by 0.002 to 0.10 on eight
# that also wait for the host, 0.05 in the middle. On another day a host is slower or faster by more (0.21 in
# the mean square on nine jobs), but it is so before and after a fix.
NOISE, HOST_NOISE = 0.03, 0.10
BASES: tuple[Basis, ...] = get_args(Basis)


@dataclass(frozen=True)
class Pair:
    """One fix of one job. Steps in ms."""

    set: str
    job: str
    name: str
    fix: str
    step: float
    measured: float
    spread: float
    predicted: float | None  # None: not advised for this job, or nobody can tell
    short: float = 0.0  # that replays allow as well: on another host, or where a fix does more or less
    long: float = 0.0
    idle: float = 0.0  # of the step: the device waits
    why: str = ""
    best: float | None = None  # the bound: no real step should be shorter
    basis: Basis = "curves"  # what the prediction rests on

    @property
    def beaten(self) -> bool:
        """Whether the measured step is well below the bound."""
        return self.best is not None and self.best > BEATEN * self.measured * (1 + self.spread)

    @property
    def error(self) -> float:
        """Of the prediction; one that is not made counts as a step that does not change."""
        said = self.predicted if self.predicted is not None else self.step
        return max(abs(math.log(said / self.measured)) - self.spread / 2, 0.0)

    @property
    def gain(self) -> float:
        return abs(math.log(self.step / self.predicted)) if self.predicted else 0.0

    @property
    def beyond(self) -> float:
        """What of the error the change itself must explain."""
        return max(self.outside - math.hypot(NOISE, HOST_NOISE * self.idle), 0.0)

    @property
    def outside(self) -> float:
        """How far the measurement lies from all that the replays allow."""
        return max(self.below, self.above)

    @property
    def below(self) -> float:
        """How far it is shorter than that."""
        far = math.log(self.short / self.measured) if self.predicted is not None else 0.0
        return max(far - self.spread / 2, 0.0)

    @property
    def above(self) -> float:
        far = math.log(self.measured / self.long) if self.predicted is not None else 0.0
        return max(far - self.spread / 2, 0.0)

    @property
    def family(self) -> str:
        return family_of(self.job)


def measured_pairs() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The recorded jobs with the fixes made in interleaved processes; steps as of their recording."""
    jobs = json.loads(PAIRS.read_text())["jobs"] if PAIRS.exists() else {}
    recorded = {trace_name(path): (path, truth["step_ms"]) for path, truth in truths(FOLDERS["fixtures"])}
    for folder in RUN_FOLDERS:
        recorded[folder.name] = folder, ms(facts_of(folder, None).step)
    for name, job in jobs.items():
        path, step = recorded[name]
        drifted = abs(math.log(step / job["step_ms"])) > DRIFT
        made = {
            fix: one | {"by_speedup_ms": step / one["speedup"] if drifted else None}
            for fix, one in job["fixes"].items()
            if one.get("speedup") and not (name in FED_AHEAD and fix.startswith("workers"))
        }
        yield path, {"step_ms": step, "fixes": made}


def sets() -> Iterator[tuple[str, Path, dict[str, Any]]]:
    for title, folder in FOLDERS.items():
        for path, truth in truths(folder):
            yield title, path, truth
            yield UNTIMED, path, truth
    for path, truth in measured_pairs():
        yield "pairs", path, truth


def trace_name(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def is_findwalls(job: str, name: str) -> bool:
    """Whether a fix that was measured is one that findwall knows, and no more than that."""
    if name not in FIX_OF or (job, name) in MORE_THAN_ONE_FIX:
        return False
    return not (name == "bf16" and job in NOT_AUTOCAST) and not (name == "resident" and job in NEVER_COPIED)


def pairs(title: str, path: Path, truth: dict[str, Any]) -> Iterator[Pair]:
    job = trace_name(path)
    facts = facts_of(path, None if title == UNTIMED else truth["step_ms"])
    idle = round(1.0 - facts.reading.likely.busy / facts.step, 4)
    for name, found in truth["fixes"].items():
        if not is_findwalls(job, name):
            continue
        known = FIX_OF[name]
        outcomes = outcomes_of(facts, known)
        uses = {one: outcome for one, outcome in outcomes.items() if isinstance(outcome, Use)}
        why = next((one.claim.id for one in outcomes.values() if not isinstance(one, Use)), "")
        played = ends(facts, uses) if len(uses) == len(outcomes) else None
        steps = (ms(played.mid), ms(played.short), ms(played.long)) if played else (None, 0.0, 0.0)
        measured = nearest(steps[0] or ms(facts.step), found["step_ms"], found.get("by_speedup_ms"))
        spread = found.get("spread") or 0.0
        best = ms(together_at_best(uses, facts)) if len(uses) == len(outcomes) else None
        basis: Basis = played.basis if played else "curves"
        yield Pair(title, job, name, known, ms(facts.step), measured, spread, *steps, idle, why, best, basis)


def of_runs(folders: list[Path]) -> Iterator[Pair]:
    """The jobs beside the project, by their recorded runs. Hosts differ from day to day: a measured fix
    counts by its share of the plain step."""
    for job, truth in json.loads(JOBS.read_text()).items():
        path = next((one for folder in folders if (one := folder / f"run_{job}").exists()), None)
        if path is None or not truth["fixes"]:
            continue
        facts = examined(open_run([path]), None)[0]
        idle = round(1.0 - facts.reading.likely.busy / facts.step, 4)
        for name, found in truth["fixes"].items():
            share = found["step_ms"] / truth["step_ms"]
            for fix in found["figure_of"]:
                outcome = all_fixes()[fix].advise(facts) if fix in all_fixes() else None
                if (job, fix) in NOT_THE_SAME or not isinstance(outcome, Use):
                    continue
                played, now = ends(facts, {fix: outcome}), ms(facts.step)
                best = round(ms(together_at_best({fix: outcome}, facts)), 4)
                pair = Pair("jobs", job, name, fix, round(now, 4), round(share * now, 4), JUDGED_SPREAD, None)
                pair = replace(pair, idle=idle, best=best)
                if played is not None:
                    mid, short, long = (round(ms(ns), 4) for ns in (played.mid, played.short, played.long))
                    pair = replace(pair, predicted=mid, short=short, long=long, basis=played.basis)
                yield pair


def kept_pairs() -> list[Pair]:
    return [Pair(**one) for one in json.loads(JOB_PAIRS.read_text())] if JOB_PAIRS.exists() else []


def nearest(said: float, measured: float, by_speedup: float | None) -> float:
    """What a prediction is held against: the fixed step; where the plain job took another time when its fixes
    were made than when it was recorded, that or the same speed-up of the recorded step."""
    return min((one for one in (measured, by_speedup) if one), key=lambda one: abs(math.log(said / one)))


def learned(known: list[Pair]) -> Errors:
    """The errors of some pairs, as findwall makes its intervals from them.

    How far they reach is told by families: each left out once, with the shares of all others.
    """
    told = [one for one in known if one.predicted is not None]
    shares = _shares(told)
    needed: list[tuple[float, float]] = []
    for family in {one.family for one in told}:
        others = _shares([one for one in told if one.family != family])
        for one in (one for one in told if one.family == family):
            doubt = others.doubt(fixes_of(one), one.basis, one.gain, one.idle)
            needed.append((one.below / doubt, one.above / doubt))
    # A measurement that lies outside does so on one side: each may miss half of what may be missed.
    below, above = (quantile([one[side] for one in needed], (1.0 + COVERED) / 2) for side in (0, 1))
    return msgspec.structs.replace(shares, below=round(below, 3), above=round(above, 3))


def _shares(told: list[Pair]) -> Errors:
    """What of the root of a predicted change was off, fix by fix: in the mean square over families."""
    by_fix: dict[str, dict[str, list[float]]] = {}
    by_basis: dict[Basis, dict[str, list[float]]] = {one: {} for one in BASES}
    every: dict[str, list[float]] = {}
    for one in told:
        if one.gain > SMALL_CHANGE:
            off = one.beyond**2 / one.gain
            of_fixes = [by_fix.setdefault(fix, {}) for fix in fixes_of(one)]
            for found in (every, by_basis[one.basis], *of_fixes):
                found.setdefault(one.family, []).append(off)
    general = statistics.fmean(map(statistics.fmean, every.values())) if every else 1.0
    usual = {basis: _mean(found, general) for basis, found in by_basis.items()}
    return Errors(
        NOISE,
        HOST_NOISE,
        {basis: _widened(mean, 0) for basis, mean in usual.items()},
        {fix: _widened(_mean(found, general), len(found)) for fix, found in sorted(by_fix.items())},
        1.0,
        1.0,
    )


def _mean(found: dict[str, list[float]], general: float) -> float:
    """Over families, beside a few that all fixes together count for."""
    return (sum(map(statistics.fmean, found.values())) + PRIOR * general) / (len(found) + PRIOR)


def _widened(mean: float, families: int) -> float:
    """The root, as much larger as a t distribution of so many families is wider than a normal one."""
    freedom = families + PRIOR
    return round(math.sqrt(mean * freedom / (freedom - 2.0)), 3)


def quantile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else 1.0


def fixes_of(one: Pair) -> tuple[str, ...]:
    return tuple(parse(one.fix))


def interval(one: Pair, errors: Errors) -> tuple[float, float]:
    doubt = errors.doubt(fixes_of(one), one.basis, one.gain, one.idle)
    return one.short * math.exp(-errors.below * doubt), one.long * math.exp(errors.above * doubt)


def table(title: str, found: list[Pair], every: list[Pair]) -> dict[str, Any]:
    head = ("job", "fix", "step", "predicted", "interval", "measured", "error")
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    inside, widths = 0, []
    others = {
        family: learned([one for one in every if one.family != family])
        for family in {one.family for one in found}
    }
    for one in sorted(found, key=lambda one: -one.error):
        said = "—"
        if one.predicted is not None:
            low, high = interval(one, others[one.family])
            half = one.spread / 2
            inside += low <= one.measured * (1 + half) and one.measured * (1 - half) <= high
            widths.append((high - low) / one.predicted)
            said = f"{one.predicted:.2f} | {low:.2f}–{high:.2f}"
        else:
            said = f"— | {one.why[:60]}"
        cells = f"{one.job} | {one.name} | {one.step:.2f} | {said} | {one.measured:.2f} | {one.error:.2f}"
        print(f"| {cells} |")
    errors = [one.error for one in found]
    told = [one.error for one in found if one.predicted is not None]
    widths.sort()
    summary = {
        "pairs": len(errors),
        "mean_error": round(statistics.fmean(errors), 4),
        "predicted": len(told),
        "mean_error_predicted": round(statistics.fmean(told), 4) if told else None,
        "over_40_percent": sum(error > OVER for error in errors),
        "interval_right": inside,
        "width_median": round(statistics.median(widths), 3) if widths else None,
        "width_p90": round(widths[int(0.9 * (len(widths) - 1))], 3) if widths else None,
        "bounds_beaten": sum(one.beaten for one in found),
    }
    print(f"\n{summary}")
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="jobs and fixes with this in their name")
    parser.add_argument("--ship", action="store_true")
    parser.add_argument("--runs", type=Path, nargs="+")
    options = parser.parse_args()
    if options.runs:
        kept = [json.dumps(asdict(one)) for one in of_runs(options.runs)]
        JOB_PAIRS.write_text("[\n" + ",\n".join(kept) + "\n]\n")
    found = [
        one
        for title, path, truth in sets()
        if not options.only
        or options.only in path.name
        or any(options.only in name for name in truth["fixes"])
        for one in pairs(title, path, truth)
        if not options.only or options.only in one.job or options.only in one.name or options.only in one.fix
    ]
    found += [one for one in kept_pairs() if options.only in one.job or options.only in one.fix]
    timed = [one for one in found if one.set != UNTIMED]
    summaries = {
        title: table(title, mine, timed)
        for title in (*FOLDERS, "pairs", "jobs", UNTIMED)
        if (mine := [one for one in found if one.set == title])
    }
    if mine := [one for one in found if one.set == "jobs"]:
        title = "jobs, learned from the others alone"
        summaries[title] = table(title, mine, [one for one in timed if one.set != "jobs"])
    errors = learned(timed)
    if options.ship:
        SHIPPED.write_text(json.dumps(asdict_of(errors), indent=1) + "\n")
    if options.out:
        rows = [asdict(one) | {"error": round(one.error, 4)} for one in found]
        options.out.write_text(json.dumps({"summary": summaries, "pairs": rows}, indent=1) + "\n")


def asdict_of(errors: Errors) -> dict[str, Any]:
    return {
        "noise": errors.noise,
        "host_noise": errors.host_noise,
        "share": errors.share,
        "by_fix": errors.by_fix,
        "below": errors.below,
        "above": errors.above,
    }


if __name__ == "__main__":
    main()
