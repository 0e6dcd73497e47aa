"""The document of kernels that Nsight Compute counted: a verdict over kernel time, because it has no gaps.

The tool runs each kernel by itself and several times over, so nothing is known of what lies between kernels
or beside them. `step.ms` is the time of all kernels one after the other, and the budget is of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from findwall.examine.document_rows import KERNELS_LISTED, machine, without_step
from findwall.fixes import all_fixes
from findwall.model.catalogue import (
    MAJORITY_SHARE,
    MATRIX_CLASSES,
    NEAR,
    QUESTION_OF,
    ROOFS,
    SMALL_PART,
    WALL_OF,
    WALLS,
    WORTH_IT,
)
from findwall.model.causes import UNKNOWN
from findwall.model.claims import EVIDENCE_ROWS, Claim, Evidence, Figure, Range, known, plain
from findwall.model.diagnosis import (
    KERNELS_ALONE,
    BudgetRow,
    CountedKernel,
    Diagnosis,
    KernelRow,
    Next,
    Prescription,
    Quality,
    Question,
    Source,
    Step,
    TimelineSummary,
    Wall,
)
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Run
from findwall.model.ncu_kernel import NcuReport
from findwall.ncu.ncu_bounds import Judged, judge, merge
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
    return msgspec.structs.replace(
        without_step(run, ceilings, "kernels alone have no step"),
        source=Source(run.kind, list(run.paths), 0),
        machine=msgspec.structs.replace(machine(run, ceilings), device=report.device, count=None),
        step=Step(
            total_ms, None, None, "trace", None, None, None, None, 0, 0, None, KERNELS_ALONE, busy_ms=total_ms
        ),
        questions=_questions(kernels, totals),
        wall=wall,
        timeline=TimelineSummary(None, total_ms, None, None, None, []),
        quality=Quality(len(report.kernels), 0, 0, 0, False, None),
        budget=_budget(totals),
        prescriptions=_prescriptions(totals),
        kernels=[_row(one) for one in kernels[:KERNELS_LISTED]],
        remarks=[
            Claim("kernels/no-gaps"),
            *map(plain, report.notes),
            *([Claim("kernels/fewer-figures")] if report.page == "details" else []),
        ],
        counted=[_counted(one) for one in kernels[:KERNELS_LISTED]],
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
                evidence=[
                    Evidence(
                        kernel=one.kernel.name, ms=one.total_ns / NS_PER_MS, claim=judged(one, named=True)
                    )
                    for one in totals.of(cause)[:EVIDENCE_ROWS]
                ],
            )
        )
    return rows


def _prescriptions(totals: Totals) -> list[Prescription]:
    """What moves each cause that is worth it, the most first. No step is known, so none is predicted."""
    found = []
    for cause in totals.worth():
        fix = FIX_OF[cause]
        longest = totals.of(cause)[0]
        saved, whole = (part / NS_PER_MS for part in (totals.gain[cause] or 0.0, totals.time))
        how = Claim("kernels/saves", {"saves_ms": saved, "total_ms": whole}, parts=[helps(longest)])
        found.append(Prescription([fix], [cause], Range(), Range(), all_fixes()[fix].safety, "", claim=how))
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


# -- what is said of one kernel, and what helps -----------------------------------------------------------


def judged(one: Judged, named: bool = False) -> Claim:
    """`named`: with the kernel's name, where that is not said beside it."""
    kernel = one.kernel
    figures: dict[str, Figure] = {
        "calls": one.calls,
        "total_ms": one.total_ns / NS_PER_MS,
        "dram_share": kernel.dram,
        "tensor_share": kernel.tensor,
        "sm_share": kernel.sm,
        "memory_share": kernel.memory,
        "wasted_share": kernel.wasted,
        "spills": kernel.spills,
        "waves_share": kernel.waves,
        "conflicts_share": kernel.bank_conflicts,
        "warps_share": kernel.most_occupancy,
        "stall_share": kernel.stall_share,
        **_limits(one),
    }
    return Claim(f"ncu/{one.why}", figures, known(stall=kernel.stall, kernel=kernel.name if named else None))


def helps(one: Judged) -> Claim:
    return Claim(f"ncu-helps/{one.why}", _limits(one) if one.why == "occupancy" else {})


def _limits(one: Judged) -> dict[str, Figure]:
    """What lets no more warps run."""
    return {f"limit{at}": limit for at, limit in enumerate(one.kernel.limited_by, 1)}


# -- the verdict: the cause with the most recoverable kernel time, or none --------------------------------


class Totals:
    """Kernel time by cause, in ns, and what of it a perfect fix could give back; None where unknown."""

    def __init__(self, kernels: Sequence[Judged]) -> None:
        self.kernels = kernels
        self.time = sum(one.total_ns for one in kernels)
        self.spent: dict[str, float] = {}
        self.gain: dict[str, float | None] = {}
        self.blind = 0.0  # time of which nobody knows what could come back
        for one in kernels:
            self.spent[one.cause] = self.spent.get(one.cause, 0.0) + one.total_ns
            self._add_gain(one)

    def _add_gain(self, one: Judged) -> None:
        if one.cause in ROOFS:
            self.gain[one.cause] = 0.0
            return
        if one.floor_share is None:
            self.blind += one.total_ns
            self.gain.setdefault(one.cause, None)
            return
        self.gain[one.cause] = (self.gain.get(one.cause) or 0.0) + one.total_ns * (1.0 - one.floor_share)

    def of(self, cause: str) -> list[Judged]:
        """Kernels of a cause, the longest first."""
        return [one for one in self.kernels if one.cause == cause]

    def worth(self) -> list[str]:
        """Causes that give back enough to be a wall, the most first; a near tie goes to the earlier
        question."""
        known = {cause: gain for cause, gain in self.gain.items() if gain is not None and cause not in ROOFS}
        found = sorted(
            (cause for cause in known if known[cause] >= WORTH_IT * self.time), key=lambda one: -known[one]
        )
        if len(found) > 1 and known[found[1]] >= NEAR * known[found[0]]:
            first, second = found[:2]
            if QUESTION_OF[second] < QUESTION_OF[first]:
                found[:2] = [second, first]
        return found


def decide(totals: Totals) -> Wall:
    """One verdict, or what it lies between."""
    worth = totals.worth()
    if not worth:
        return _roof(totals)
    best = worth[0]
    gain = totals.gain[best] or 0.0
    known = sum(totals.gain[cause] or 0.0 for cause in worth)
    if known < SMALL_PART * max(totals.spent.get(roof, 0.0) for roof in ROOFS):
        roof = _roof(totals, best)
        if roof.cause is not None:
            return roof
    if totals.blind > gain:
        return _blind(totals, best)
    following = Next(WALL_OF[worth[1]], worth[1]) if len(worth) > 1 else None
    saves = gain / NS_PER_MS
    figures = {**_fills(totals, best), "saves_ms": saves}
    claim = Claim("kernels/wall", figures, parts=[helps(totals.of(best)[0])])
    return Wall(WALL_OF[best], best, "", following, claim=claim, saves_ms=saves)


def _fills(totals: Totals, cause: str) -> dict[str, Figure]:
    return {
        "cause": cause,
        "spent_ms": totals.spent[cause] / NS_PER_MS,
        "total_ms": totals.time / NS_PER_MS,
        "spent_share": totals.spent[cause] / totals.time,
    }


def _roof(totals: Totals, beside: str | None = None) -> Wall:
    """Nothing worth it is left. `beside`: what gives something back, but little beside what stands there."""
    if totals.blind > SMALL_PART * totals.time:
        return _blind(totals, None)
    compute, bandwidth = (
        sum(totals.spent.get(cause, 0.0) for cause in WALLS[wall]) for wall in ("compute", "bandwidth")
    )
    roof = ROOFS[0] if compute >= bandwidth else ROOFS[1]
    if totals.spent.get(roof, 0.0) < WORTH_IT * totals.time:
        figures: dict[str, Figure] = {"worth_share": WORTH_IT, "total_ms": totals.time / NS_PER_MS}
        return Wall(None, None, between=[], claim=Claim("kernels/no-roof", figures), why_not="no-roof")
    figures = {**_fills(totals, roof), "worth_share": WORTH_IT}
    following = None
    if beside is not None:
        figures |= {"beside": beside, "gain_ms": (totals.gain[beside] or 0.0) / NS_PER_MS}
        following = Next(WALL_OF[beside], beside)
    claim = Claim("kernels/roof", figures, parts=[helps(totals.of(roof)[0])])
    return Wall(WALL_OF[roof], roof, "", following, claim=claim)


def _blind(totals: Totals, best: str | None) -> Wall:
    """Too much is unknown: what it may be, and what would tell."""
    between = [best] if best is not None else []
    between += [
        cause for cause in totals.spent if cause not in (UNKNOWN, best) and totals.gain[cause] is None
    ]
    counters = totals.spent.get(UNKNOWN, 0.0) >= MAJORITY_SHARE * totals.blind
    share: dict[str, Figure] = {"blind_share": totals.blind / totals.time}
    claim = Claim("kernels/no-counters" if counters else "kernels/no-floor", share)
    pairs = [[WALL_OF[cause], cause] for cause in between]
    return Wall(None, None, between=pairs, claim=claim, why_not="unknown")
