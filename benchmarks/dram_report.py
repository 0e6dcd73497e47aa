"""From counted kernels to figures: the draw, the table by class, and what is printed."""

from __future__ import annotations

import random
import statistics
from datetime import date

from dram_counts import Job, Kernel, bare_name

DRAWN, SEED, TIMES_L2 = 80, 20, 3.0
WORST = 25  # printed; all are in the file
MEDIAN_BAR, P90_BAR, KERNELS_BAR, CLASSES_BAR = 0.15, 0.50, 40, 6


def large(kernels: list[Kernel], l2_bytes: float) -> list[list[Kernel]]:
    """Distinct kernels well above the cache, all calls of each."""
    groups: dict[tuple[str, str, str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.modelled is None or not kernel.counted:
            continue
        if max(kernel.modelled, kernel.counted) >= TIMES_L2 * l2_bytes:
            groups.setdefault((kernel.job, kernel.name, kernel.op, kernel.inputs), []).append(kernel)
    return [groups[key] for key in sorted(groups)]


def draw(groups: list[list[Kernel]]) -> list[Kernel]:
    """At random, weighted by the time all calls take; of each one call."""
    generator = random.Random(SEED)
    pool, drawn = list(groups), []
    while pool and len(drawn) < DRAWN:
        weights = [sum(kernel.us for kernel in group) for group in pool]
        chosen = generator.choices(range(len(pool)), weights)[0]
        drawn.append(generator.choice(pool.pop(chosen)))
    return drawn


def percentile90(errors: list[float]) -> float | None:
    return sorted(errors)[min(len(errors) - 1, int(0.9 * len(errors)))] if errors else None


def by_class(drawn: list[Kernel], groups: list[list[Kernel]]) -> dict[str, dict[str, object]]:
    """Figures of each class: the drawn kernels, and all distinct large ones (the median of their calls)."""
    told: dict[str, dict[str, object]] = {}
    for name in sorted({group[0].kernel_class for group in groups}):
        mine = [kernel.error for kernel in drawn if kernel.kernel_class == name]
        every = [group for group in groups if group[0].kernel_class == name]
        errors = [statistics.median(kernel.error for kernel in group) for group in every]
        ratios = [(kernel.modelled or 0) / (kernel.counted or 1) for group in every for kernel in group]
        told[name] = {
            "drawn": len(mine),
            "drawn_median_error": statistics.median(mine) if mine else None,
            "drawn_p90_error": percentile90(mine),
            "distinct": len(every),
            "calls": len(ratios),
            "median_error": statistics.median(errors),
            "p90_error": percentile90(errors),
            "median_modelled_over_counted": statistics.median(ratios),
        }
    return told


def summarise(
    drawn: list[Kernel], groups: list[list[Kernel]], jobs: dict[str, Job], about: dict[str, str]
) -> dict[str, object]:
    kernels = [kernel for job in jobs.values() for kernel in job.kernels]
    total = max(sum(kernel.us for kernel in kernels), 1e-9)
    errors = [kernel.error for kernel in drawn]
    bars = {"median": MEDIAN_BAR, "p90": P90_BAR, "kernels": KERNELS_BAR, "classes": CLASSES_BAR}
    return {
        "date": date.today().isoformat(),
        **about,
        "kernels": len(drawn),
        "classes": sorted({kernel.kernel_class for kernel in drawn}),
        "median_error": statistics.median(errors) if errors else None,
        "p90_error": percentile90(errors),
        "bars": bars,
        "kernels_seen": len(kernels),
        "modelled_share_of_time": sum(k.us for k in kernels if k.modelled is not None) / total,
        "counted_share_of_time": sum(k.us for k in kernels if k.counted) / total,
        "at_least_times_l2": TIMES_L2,
        "seed": SEED,
        "jobs": {job.name: job.row() for job in jobs.values()},
        "by_class": by_class(drawn, groups),
        "table": [{**kernel.row(), "error": kernel.error} for kernel in drawn],
        "every_large_kernel": [brief(group) for group in groups],
    }


def brief(group: list[Kernel]) -> dict[str, object]:
    first = group[0]
    return {
        "job": first.job,
        "kernel": first.shape.bare,
        "op": first.op,
        "inputs": first.inputs[:120],
        "class": first.kernel_class,
        "us": [round(kernel.us, 1) for kernel in group],
        "modelled_mb": [round((kernel.modelled or 0) / 1e6, 1) for kernel in group],
        "counted_mb": [round((kernel.counted or 0) / 1e6, 1) for kernel in group],
    }


def percent(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, float) else "-"


def show(drawn: list[Kernel], summary: dict[str, object]) -> None:
    print(f"{'job':11s} {'class':10s} {'ms':>7s} {'model MB':>9s} {'DRAM MB':>9s} {'error':>6s}  kernel / op")
    for kernel in sorted(drawn, key=lambda kernel: -kernel.error)[:WORST]:
        modelled, counted = (kernel.modelled or 0) / 1e6, (kernel.counted or 0) / 1e6
        figures = f"{kernel.us / 1e3:7.3f} {modelled:9.1f} {counted:9.1f} {kernel.error:6.1%}"
        what = f"{bare_name(kernel.name)[:44]} / {kernel.op} {kernel.inputs[:60]}"
        print(f"{kernel.job:11s} {kernel.kernel_class:10s} {figures}  {what}")
    print(f"\n{'job':12s} {'kernels':>7s} {'counted':>7s} {'matched':>7s} {'share':>7s} {'of time':>7s}")
    for name, job in summary["jobs"].items():  # type: ignore[attr-defined]
        shares = f"{percent(job['matched_share']):>7s} {percent(job['matched_share_of_time']):>7s}"
        print(f"{name:12s} {job['kernels']:7d} {job['counted']:7d} {job['matched']:7d} {shares}")
    print(f"\n{'':10s} {'drawn':>22s} {'all distinct large ones':>42s}")
    print(
        f"{'class':10s} {'count':>6s} {'median':>7s} {'p90':>7s} {'distinct':>9s} {'calls':>6s} "
        f"{'median':>7s} {'p90':>7s} {'model/DRAM':>10s}"
    )
    for name, row in summary["by_class"].items():  # type: ignore[attr-defined]
        print(
            f"{name:10s} {row['drawn']:6d} {percent(row['drawn_median_error']):>7s} "
            f"{percent(row['drawn_p90_error']):>7s} {row['distinct']:9d} {row['calls']:6d} "
            f"{percent(row['median_error']):>7s} {percent(row['p90_error']):>7s} "
            f"{row['median_modelled_over_counted']:10.2f}"
        )
    print(
        f"{len(drawn)} kernels of {len(summary['classes'])} classes; of all kernel time modelled "  # type: ignore[arg-type]
        f"{percent(summary['modelled_share_of_time'])}, counted {percent(summary['counted_share_of_time'])}"
    )
    print(f"median error {percent(summary['median_error'])} (bar {MEDIAN_BAR:.0%})")
    print(f"90th percentile {percent(summary['p90_error'])} (bar {P90_BAR:.0%})")


def is_good(summary: dict[str, object]) -> bool:
    median, p90 = summary["median_error"], summary["p90_error"]
    enough = summary["kernels"] >= KERNELS_BAR and len(summary["classes"]) >= CLASSES_BAR  # type: ignore
    return enough and median < MEDIAN_BAR and p90 < P90_BAR  # type: ignore[operator]
