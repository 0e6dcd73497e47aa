"""Rows of the document that need no judgement: machine, step, questions, kernels, memory, throughput."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from findwall.examine.remarks import about_kinds
from findwall.facts.facts import Facts, of_class
from findwall.facts.step_traits import on_cores
from findwall.model.answers.memory_answer import Memory, MemoryCurve
from findwall.model.catalogue import (
    FAIR_PART,
    KERNEL_CLASSES,
    MAJORITY_SHARE,
    MATRIX_CLASSES,
    NEAR,
    NEARLY_ALL,
    WALL_OF,
)
from findwall.model.claims import Claim, Figure, listed
from findwall.model.diagnosis import (
    SCHEMA,
    Diagnosis,
    KernelRow,
    Machine,
    Mfu,
    Quality,
    Question,
    Source,
    Step,
    Throughput,
    TimelineSummary,
    Wall,
)
from findwall.model.machine import CONTENDED, Ceilings, Finding
from findwall.model.measured_run import Rank, Run
from findwall.step.timed_steps import FEWEST_STEPS
from findwall.units import GIB, ms
from findwall.work.work_facts import BOUNDS, WorkFacts

CURVE_POINTS = 200  # of memory over time: more than a screen has columns
KERNELS_LISTED = 200  # in the document: far more than a person reads, few enough to keep it small
NORMAL_95 = 1.96  # standard errors on either side of a mean that hold it 95 times in 100


def without_step(run: Run, ceilings: Ceilings, why: str) -> Diagnosis:
    """The document of a run without a step, to be filled in. `why`: nobody knows how much it used."""
    return Diagnosis(
        schema=SCHEMA,
        source=Source(run.kind, list(run.paths), len(run.ranks), run.crash),
        machine=machine(run, ceilings),
        step=Step(None, None, None, "estimated", None, None, None, None, 0, 0, None),
        questions=[],
        wall=Wall(None, None),
        timeline=TimelineSummary(None, None, None, None, None, []),
        quality=Quality(0, 0, 0, 0, False, None),
        budget=[],
        phases=[],
        memory=Memory(None, None),
        prescriptions=[],
        not_worth_it=[],
        mfu=Mfu(None, None, None, None, why),
        throughput=None,
        kernels=[],
        trials=[],
        notes=[],
    )


def machine(run: Run, ceilings: Ceilings) -> Machine:
    figures: dict[str, object] = {
        **{f"{math}_tflops": flops / 1e12 for math, flops in ceilings.flops.items()},
        **{f"{math}_spec_tflops": flops / 1e12 for math, flops in ceilings.spec_flops.items()},
        "memory_gbps": ceilings.bandwidth / 1e9 if ceilings.bandwidth else None,
        "memory_spec_gbps": ceilings.spec_bandwidth / 1e9 if ceilings.spec_bandwidth else None,
        "source": ceilings.source,
        "origin": ceilings.origin or None,
        "device": ceilings.device or None,  # that they are of; a file may hold another one's
        "doubt": ceilings.doubt or None,
    }
    return Machine(run.device_name, _count(run), figures)


def _count(run: Run) -> int | None:
    """How many devices the ranks used; None where it is not known whether they shared some.

    Every rank may call its own device 0. NCCL takes one device a rank; other backends do not mind sharing.
    """
    used = [device for timeline in run.timelines for device in _devices(timeline.events.device)]
    reduced = [rank.summary for rank in run.ranks if rank.summary is not None and rank.device_kind == "gpu"]
    used += [one.device for summary in reduced for one in summary.devices]
    backends = [timeline.header.backend for timeline in run.timelines]
    shareable = any(name is not None and "nccl" not in name.lower() for name in backends)
    return None if shareable and len(set(used)) < len(used) else len(used)


def _devices(column: np.ndarray) -> list[int]:
    found: list[int] = np.unique(column[column >= 0]).tolist()
    return found


def step_of(facts: Facts) -> Step:
    """The step's length with its spread; of steps that were not profiled wherever those were timed."""
    reading, timed = facts.reading, facts.rank.step_times
    measured = timed is not None and reading.source == "measured"
    seconds = np.array(timed.seconds) if measured and timed is not None else facts.whole.steps.lengths / 1e9
    low, middle, high = np.percentile(seconds, [10, 50, 90]) * 1e3
    of_step = measured or reading.source == "trace"
    if measured:
        half = NORMAL_95 * _error_of_mean(seconds, timed.kind if timed is not None else ()) * 1e3
        ends = (max(ms(facts.step) - half, 0.0), ms(facts.step) + half)
    else:
        steps = [ms(one.step) for one in reading.scenarios]
        ends = (min(steps), max(steps))
    return Step(
        ms=ms(facts.step),
        low_ms=float(ends[0]),
        high_ms=float(ends[1]),
        source=reading.source,  # type: ignore[arg-type]
        median_ms=float(middle) if of_step else None,
        p10_ms=float(low) if of_step else None,
        p90_ms=float(high) if of_step else None,
        profiled_ms=ms(float(facts.whole.steps.lengths.mean())),
        count=len(seconds),
        discarded=timed.discarded if measured and timed is not None else len(facts.whole.cold_ms),
        stable=is_steady(seconds),
        found_by=facts.steps.found_by,
        busy_ms=ms(reading.likely.busy),
    )


def _error_of_mean(seconds: np.ndarray, kinds: Sequence[str]) -> float:
    """The standard error of the mean: of steps that come in kinds at even distances, within each kind."""
    if len(seconds) < 2:
        return 0.0
    names = np.array(kinds) if len(kinds) == len(seconds) else np.zeros(len(seconds))
    parts = [seconds[names == name] for name in np.unique(names)]
    within = sum(len(mine) * float(mine.std(ddof=1)) ** 2 for mine in parts if len(mine) > 1)
    return float(np.sqrt(within) / len(seconds))


def kernel_rows(facts: Facts) -> list[KernelRow]:
    """Kernels of the window, merged by name, op and class, longest first; figures a step."""
    kernels, index, count = facts.kernels, facts.atoms.index, facts.steps.count
    names = facts.timeline.events.name[kernels.row[index]].astype(np.int64)
    ops = np.where(kernels.op[index] >= 0, facts.timeline.events.name[np.maximum(kernels.op[index], 0)], -1)
    keys = np.stack([names, ops.astype(np.int64), kernels.class_index[index].astype(np.int64)], axis=1)
    if len(keys) == 0:
        return []
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    width = len(distinct)
    weight = facts.weight
    calls = np.bincount(group, weight, minlength=width) / count
    time = np.bincount(group, kernels.duration[index] * weight, minlength=width) / count

    def total(column: np.ndarray) -> np.ndarray:
        known = ~np.isnan(column)
        found = np.bincount(group[known], (column * weight)[known], minlength=width) / count
        whole = np.bincount(group[known], minlength=width) == np.bincount(group, minlength=width)
        return np.where(whole, found, np.nan)

    flops, moved, floor = (
        total(kernels.flops[index]),
        total(kernels.bytes[index]),
        total(kernels.floor[index]),
    )
    bound = np.zeros((width, len(BOUNDS)))
    np.add.at(bound, (group, kernels.bound[index].astype(np.int64)), kernels.duration[index])
    rows = []
    for at in np.argsort(-time, kind="stable")[:KERNELS_LISTED].tolist():
        name, op, kind = distinct[at].tolist()
        rows.append(
            KernelRow(
                name=facts.timeline.names[name],
                op=facts.timeline.names[op] if op >= 0 else None,
                class_=KERNEL_CLASSES[kind],
                calls=float(calls[at]),
                ms=ms(float(time[at])),
                flops=_known(flops[at]),
                bytes=_known(moved[at]),
                floor_ms=None if np.isnan(floor[at]) else ms(float(floor[at])),
                bound=BOUNDS[int(np.argmax(bound[at]))],  # type: ignore[arg-type]
            )
        )
    return rows


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def totals(run: Run) -> Memory:
    """As the allocator counted it: blocks that are allocated, requests rounded up."""
    total = device_total(run)
    found = Memory(None, total / GIB if total else None)
    if run.peak_memory:
        found.of, found.peak_gib = "allocated", run.peak_memory / GIB
        found.allocated_gib = found.peak_gib
    return found


def device_total(run: Run) -> int | None:
    """Bytes that the device has."""
    known = [properties.total_memory for timeline in run.timelines for properties in timeline.header.devices]
    return known[0] if known else run.first.total_memory


def curve(times_ms: np.ndarray | None, used: np.ndarray, reserved: np.ndarray) -> MemoryCurve | None:
    """Memory over time, few enough points to keep the document small; None where there are none."""
    count = len(used)
    if count == 0:
        return None
    starts = np.unique(np.linspace(0, count, min(count, CURVE_POINTS), endpoint=False).astype(np.int64))
    return MemoryCurve(
        [] if times_ms is None else times_ms[starts].round(3).tolist(),
        (np.maximum.reduceat(used, starts) / GIB).tolist(),
        (np.maximum.reduceat(reserved, starts) / GIB).tolist(),
    )


def throughput(run: Run, step_ns: float) -> Throughput | None:
    if run.samples_per_step is None or step_ns <= 0:
        return None
    return Throughput(
        run.samples_per_step * len(run.ranks or (1,)) / (step_ns / 1e9), f"{run.sample_unit or 'samples'}/s"
    )


def warnings(run: Run, rank: Rank, causes: Sequence[str]) -> list[str]:
    """What the audit of the environment warns of: each as what is wrong, then what to do.

    `rank`: the one that speaks; `causes`: its verdict, or what that lies between.
    """
    findings = [found for found in run.environment.findings if found.level == "warning"]
    return [
        f"{_sentence(rank, found, causes)}{f' Fix: {found.fix}.' if found.fix else ''}" for found in findings
    ]


def _sentence(rank: Rank, found: Finding, causes: Sequence[str]) -> str:
    """A finding's sentence, with what it means for this verdict where that is known."""
    touched = [
        cause for cause in causes if rank.device_kind == "cpu" or WALL_OF.get(cause) in ("overhead", "data")
    ]
    if found.id != CONTENDED or not touched:
        return found.sentence
    return f"{found.sentence.removesuffix('.')}, so part of {listed(touched)} may be their doing."


# -- the four questions, always asked and answered in this order, each with its number --------------------


NO_CLASS = "other"  # of kernels: neither name nor op says what they do


def answer_questions(facts: Facts) -> list[Question]:
    return [_stable(facts), _busy(facts), _matmul(facts), _peak(facts)]


def _yes(condition: bool) -> str:
    return "yes" if condition else "no"


def is_steady(seconds: np.ndarray) -> bool | None:
    """Whether steps take about as long as each other; None: too few alike ones were seen to say so."""
    value = spread(seconds)
    if value is None or (value <= FAIR_PART and len(seconds) < FEWEST_STEPS):
        return None
    return value <= FAIR_PART


def spread(seconds: np.ndarray) -> float | None:
    """(p90 - p10) / median; None from fewer than two steps."""
    if len(seconds) < 2:
        return None
    low, middle, high = np.percentile(seconds, [10, 50, 90])
    return float((high - low) / middle) if middle > 0 else None


def _stable(facts: Facts) -> Question:
    timed = facts.rank.step_times
    measured = timed is not None and len(timed.seconds) > 1
    seconds = np.array(timed.seconds) if measured and timed is not None else facts.whole.steps.lengths / 1e9
    told = about_kinds(facts.rank, facts)
    if told and len(seconds) > 1:
        kinds = Claim("stable/kinds", {"kinds": len(told) + 1}, parts=told[:1])
        return Question("stable", "no", spread(seconds), claim=kinds)
    return steadiness(seconds, profiled=not measured)


def steadiness(seconds: np.ndarray, profiled: bool = False) -> Question:
    """The first of the questions, of steps that are all of one kind."""
    value, steady = spread(seconds), is_steady(seconds)
    if value is None:
        return Question(
            "stable", "unknown", None, claim=Claim("stable/one-step" if len(seconds) else "stable/none")
        )
    figures = {"spread_share": value, "steps": len(seconds), "profiled": profiled, "few": steady is None}
    answer = "unknown" if steady is None else _yes(steady)
    return Question("stable", answer, value, claim=Claim("stable/spread", {**figures}))  # type: ignore[arg-type]


def _busy(facts: Facts) -> Question:
    shares = [
        scenario.busy / scenario.step if scenario.step > 0 else 0.0 for scenario in facts.reading.scenarios
    ]
    likely, low, high = shares[1], min(shares), max(shares)
    figures: dict[str, Figure] = {"on_cores": on_cores(facts), "low_share": low, "high_share": high}
    if _yes(low >= NEARLY_ALL) != _yes(high >= NEARLY_ALL):
        return Question("busy", "unknown", likely, claim=Claim("busy/hidden", figures))
    figures |= {"busy_share": likely, "idle_ms": ms(facts.step - facts.reading.likely.busy)}
    return Question("busy", _yes(likely >= NEARLY_ALL), likely, claim=Claim("busy/works", figures))  # type: ignore[arg-type]


def counted_busy(busy: float | None, nothing: Claim) -> Question:
    """The second of them, by counters alone."""
    if busy is None:
        return Question("busy", "unknown", None, claim=nothing)
    return Question("busy", _yes(busy >= NEARLY_ALL), busy, claim=Claim("busy/counted", {"busy_share": busy}))  # type: ignore[arg-type]


def _matmul(facts: Facts) -> Question:
    busy = float(facts.own.sum())
    if busy <= 0:
        return Question("matmul", "unknown", None, claim=Claim("matmul/no-work"))
    value = float(facts.own[of_class(facts, *MATRIX_CLASSES)].sum()) / busy
    nameless_work = of_class(facts, NO_CLASS) & ~facts.kernels.modelled[facts.atoms.index]
    most = value + float(facts.own[nameless_work].sum()) / busy
    if value < MAJORITY_SHARE <= most:
        nameless = Claim("matmul/unknown", {"unknown_share": most - value})
        return Question("matmul", "unknown", None, claim=nameless)
    part = Claim("matmul/share", {"matmul_share": value})
    return Question("matmul", _yes(value >= MAJORITY_SHARE), value, claim=part)  # type: ignore[arg-type]


def _peak(facts: WorkFacts) -> Question:
    matrix = of_class(facts, *MATRIX_CLASSES)
    index = facts.atoms.index
    floor = np.fmin(facts.kernels.floor[index], facts.kernels.better_floor[index])
    known = matrix & ~np.isnan(floor)
    time = float(facts.kernels.duration[index][known].sum())
    if not float(facts.kernels.duration[index][matrix].sum()):
        return Question("peak", "unknown", None, claim=Claim("peak/no-matmuls"))
    if time < MAJORITY_SHARE * float(facts.kernels.duration[index][matrix].sum()):
        blind = Claim("peak/unknown", {"ceilings_known": facts.ceilings.known})
        return Question("peak", "unknown", None, claim=blind)
    value = float(floor[known].sum()) / time
    figures: dict[str, Figure] = {
        "reached_share": value,
        "on_cores": on_cores(facts),
        "source": "doubtful" if facts.ceilings.doubt else facts.ceilings.source,
    }
    return Question("peak", _yes(value >= NEAR), value, claim=Claim("peak/reached", figures))  # type: ignore[arg-type]
