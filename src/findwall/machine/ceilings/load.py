"""Ceilings of a machine that others use too come out too low: the load is measured with them.

A busy machine is waited for a while, and measured again while time is left; what is still in doubt then is
marked, and a verdict that rests on it says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from findwall.machine.ceilings.clocks_used import Allowance
from findwall.machine.ceilings.measured_report import CeilingsReport
from findwall.machine.neighbours import between, look, watch
from findwall.model.machine import SHARED_GPU, CpuUse, Finding

# Of the cores, kept busy by others: what they take is missing in the figures. Chosen by hand; an idle
# machine's own housekeeping stays well below it.
QUIET_SHARE = 0.1
WAIT_SHARE = 0.25  # of the time that may be spent: waiting for a quiet moment; chosen by hand


def measure_quietly(
    measure: Callable[[], CeilingsReport],
    allowance: Allowance,
    on_gpu: bool,
    findings: Callable[[], list[Finding]],
) -> CeilingsReport:
    """The measurement with the fewest others beside it, marked if there were too many all the time."""
    if not on_gpu:
        _wait_for_quiet(allowance)
    best: CeilingsReport | None = None
    while True:
        before, began = look(), time.perf_counter()
        report = measure()
        took = time.perf_counter() - began
        cpu = between(before, look())
        report = _marked(report, cpu, doubt_of(cpu, on_gpu, findings() if on_gpu else []), on_gpu)
        if best is None or _others(report) <= _others(best):
            best = report
        if not best.ceilings.doubt or allowance.left_s < took:
            return best


def doubt_of(cpu: CpuUse | None, on_gpu: bool, findings: list[Finding]) -> str:
    """Why what was measured may be too low; empty if nothing is known that would make it so."""
    if on_gpu:
        shared = [finding.sentence.rstrip(".") for finding in findings if finding.id == SHARED_GPU]
        return shared[0] if shared else ""
    return "" if is_quiet(cpu) else _beside(cpu)


def is_quiet(cpu: CpuUse | None) -> bool:
    """Also where the system does not tell: nothing is claimed then."""
    return cpu is None or not cpu.cores or (cpu.others_busy or 0.0) <= QUIET_SHARE * cpu.cores


def _wait_for_quiet(allowance: Allowance) -> None:
    until = WAIT_SHARE * allowance.total_s
    while allowance.spent_s < until and not is_quiet(watch()):
        continue


def _others(report: CeilingsReport) -> float:
    return report.others_busy or 0.0


def _beside(cpu: CpuUse | None) -> str:
    assert cpu is not None
    return f"Other processes kept {cpu.others_busy:.1f} of {cpu.cores} cores busy meanwhile"


def _marked(report: CeilingsReport, cpu: CpuUse | None, doubt: str, on_gpu: bool) -> CeilingsReport:
    notes = list(report.notes)
    if doubt:
        notes.insert(0, f"{doubt}: these figures may be too low. Measure again when the machine is quiet.")
    elif on_gpu and not is_quiet(cpu):
        notes.append(f"{_beside(cpu)}: the costs of launches and of copies from the host may be too high.")
    return msgspec.structs.replace(
        report,
        ceilings=msgspec.structs.replace(report.ceilings, doubt=doubt),
        notes=tuple(notes),
        others_busy=None if cpu is None else cpu.others_busy,
    )
