"""The document of kernels that Nsight Compute counted: a verdict over kernel time, because it has no gaps.

The tool runs each kernel by itself and several times over, so nothing is known of what lies between kernels
or beside them. `step.ms` is the time of all kernels one after the other, and the budget is of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from findwall.attribute.ncu_kernels import Judged, judge, merge
from findwall.examine.ncu_claims import helps, judged
from findwall.examine.ncu_verdict import Totals, decide
from findwall.examine.rows import KERNELS_LISTED, machine
from findwall.fixes import all_fixes
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, NEAR, WALL_OF
from findwall.model.causes import UNKNOWN
from findwall.model.claims import Claim, plain
from findwall.model.diagnosis import (
    EVIDENCE_ROWS,
    KERNELS_ALONE,
    SCHEMA,
    BudgetRow,
    CountedKernel,
    Diagnosis,
    Evidence,
    KernelRow,
    Memory,
    Mfu,
    Prescription,
    Quality,
    Question,
    Range,
    Source,
    Step,
    TimelineSummary,
)
from findwall.model.machine import Ceilings
from findwall.model.ncu import NcuReport
from findwall.model.run import Run
from findwall.units import NS_PER_MS

# The fix that moves each cause as these counters tell it.
FIX_OF = {
    "misaligned-shapes": "pad-shapes",
    "fast-path-off": "tf32",
    "layout-copies": "fewer-copies",
    "gather-scatter": "sorted-index",
    "slow-kernels": "custom-kernels",
    "launch-bound": "torch-compile",
}


def diagnose_kernels(run: Run, report: NcuReport, ceilings: Ceilings) -> Diagnosis:
    """Every kernel judged by its counters, and what they come to together."""
    kernels = [judge(one, ceilings) for one in merge(report.kernels)]
    totals = Totals(kernels)
    wall = decide(totals)
    total_ms = totals.time / NS_PER_MS
    return Diagnosis(
        schema=SCHEMA,
        source=Source(run.kind, list(run.paths), 0),
        machine=msgspec.structs.replace(machine(run, ceilings), device=report.device, count=None),
        step=_step(total_ms),
        questions=_questions(kernels, totals),
        wall=wall,
        timeline=TimelineSummary(None, total_ms, None, None, None, []),
        quality=Quality(len(report.kernels), 0, 0, 0, False, None),
        budget=_budget(totals),
        phases=[],
        memory=Memory(None, None),
        prescriptions=_prescriptions(totals),
        not_worth_it=[],
        mfu=Mfu(None, None, None, None, "kernels alone have no step"),
        throughput=None,
        kernels=[_row(one) for one in kernels[:KERNELS_LISTED]],
        trials=[],
        notes=[],
        remarks=[
            Claim("kernels/no-gaps"),
            *map(plain, report.notes),
            *([Claim("kernels/fewer-figures")] if report.page == "details" else []),
        ],
        counted=[_counted(one) for one in kernels[:KERNELS_LISTED]],
    )


def _step(total_ms: float) -> Step:
    return Step(
        ms=total_ms,
        low_ms=None,
        high_ms=None,
        source="trace",
        median_ms=None,
        p10_ms=None,
        p90_ms=None,
        profiled_ms=None,
        count=0,
        discarded=0,
        stable=None,
        found_by=KERNELS_ALONE,
        busy_ms=total_ms,
    )


def _questions(kernels: Sequence[Judged], totals: Totals) -> list[Question]:
    products = [one for one in kernels if one.class_ in MATRIX_CLASSES]
    time = sum(one.total_ns for one in products)
    share = time / totals.time
    matmul = Claim("kernels/matmul", {"matmul_share": share})
    return [
        Question("stable", "unknown", None, claim=Claim("kernels/no-steps")),
        Question("busy", "unknown", None, claim=Claim("kernels/no-gaps-here")),
        Question("matmul", "yes" if share >= MAJORITY_SHARE else "no", share, claim=matmul),
        _peak(products, time),
    ]


def _peak(products: Sequence[Judged], time: float) -> Question:
    if not products:
        return Question("peak", "unknown", None, claim=Claim("peak/no-matmuls"))
    if any(one.floor_share is None for one in products):
        return Question("peak", "unknown", None, claim=Claim("kernels/peak-unknown"))
    value = sum((one.floor_share or 0.0) * one.total_ns for one in products) / time
    reached = Claim("kernels/peak", {"reached_share": value})
    return Question("peak", "yes" if value >= NEAR else "no", value, claim=reached)


def _budget(totals: Totals) -> list[BudgetRow]:
    rows = []
    for cause in sorted(totals.spent, key=lambda name: (name == UNKNOWN, -totals.spent[name])):
        gain = totals.gain[cause]
        rows.append(
            BudgetRow(
                wall=WALL_OF.get(cause),
                cause=cause,
                ms=totals.spent[cause] / NS_PER_MS,
                low_ms=None,
                high_ms=None,
                recoverable_ms=None if gain is None else gain / NS_PER_MS,
                evidence=[_evidence(one) for one in totals.of(cause)[:EVIDENCE_ROWS]],
            )
        )
    return rows


def _evidence(one: Judged) -> Evidence:
    name = one.kernel.name
    return Evidence(kernel=name, ms=one.total_ns / NS_PER_MS, claim=judged(one, named=True))


def _prescriptions(totals: Totals) -> list[Prescription]:
    """What moves each cause that is worth it, the most first. No step is known, so none is predicted."""
    found = []
    for cause in totals.worth():
        fix = FIX_OF[cause]
        longest = totals.of(cause)[0]
        saved, whole = (part / NS_PER_MS for part in (totals.gain[cause] or 0.0, totals.time))
        how = Claim("kernels/saves", {"saves_ms": saved, "total_ms": whole}, parts=[helps(longest)])
        safety = all_fixes()[fix].safety
        found.append(Prescription([fix], [cause], Range(), Range(), safety, "", claim=how))
    return found


def _row(one: Judged) -> KernelRow:
    return KernelRow(
        name=one.kernel.name,
        op=None,
        class_=one.class_,
        calls=one.calls,
        ms=one.total_ns / NS_PER_MS,
        bytes=_times(one.kernel.dram_bytes, one.calls),
        floor_ms=_times(one.floor_share, one.total_ns / NS_PER_MS),
        bound=one.bound,  # type: ignore[arg-type]
    )


def _counted(one: Judged) -> CountedKernel:
    kernel = one.kernel
    return CountedKernel(
        name=kernel.name,
        grid=list(kernel.grid) if kernel.grid else None,
        block=list(kernel.block) if kernel.block else None,
        class_=one.class_,
        calls=one.calls,
        ms=one.total_ns / NS_PER_MS,
        bound=one.bound,  # type: ignore[arg-type]
        cause=one.cause,
        claim=judged(one),
        action=helps(one),
        floor_ms=_times(one.floor_share, one.total_ns / NS_PER_MS),
        bytes=_times(kernel.dram_bytes, one.calls),
        dram_share=kernel.dram,
        memory_share=kernel.memory,
        sm_share=kernel.sm,
        tensor_share=kernel.tensor,
        occupancy=kernel.occupancy,
        occupancy_limit=kernel.most_occupancy,
        limited_by=list(kernel.limited_by),
        waves=kernel.waves,
        spills=kernel.spills,
        wasted_sectors=kernel.wasted,
        bank_conflicts=kernel.bank_conflicts,
        stall=kernel.stall,
        stall_share=kernel.stall_share,
    )


def _times(value: float | None, count: float) -> float | None:
    return None if value is None else value * count
