"""A measurement whose figures can be: what cannot is left out, part by part, and noted.

A folder may have been cut off, edited or made up. A wrong figure that decodes would become a wrong verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from findwall.model.answers.memory_answer import FailedModel
from findwall.model.machine import Ceilings, MemoryTotals, Telemetry
from findwall.model.measurement import (
    Elapsed,
    Later,
    Measurement,
    StepColumns,
    Trace,
)

LONGEST_NS = 366 * 86_400 * 10**9  # a year: no job's time is longer
LONGEST_STEP_NS = 86_400 * 10**9  # a day
MOST = 10**18  # of anything that is counted
MOST_RANKS = 10**6
MOST_MOMENTS = 16  # of an optimizer
MOST_WEIGHTS = 10**5
MOST_BYTES = 1 << 50  # of anything: a petabyte is damage
MOST_LOOKS = 1024  # at memory: twice as many as are ever kept
_PERCENT = 100.0
_DEFAULT = Measurement()
_DEVICE_KINDS = ("cpu", "gpu")


def made_sound(measured: Measurement, rank: int, notes: list[str]) -> Measurement:
    """The measurement of this rank without the parts that cannot be."""
    changes: dict[str, Any] = {}
    if measured.rank != rank:
        notes.append(f"the measurement of rank {rank} says that it is of rank {measured.rank}")
        changes["rank"] = rank
    for name in measured.__struct_fields__:
        value = getattr(measured, name)
        complaint = _impossible(value) if name != "rank" else ""
        complaint = complaint or (_CHECKS[name](value) if name in _CHECKS and value is not None else "")
        if complaint:
            notes.append(f"rank {rank}: {name} left out, because it cannot be right ({complaint})")
            changes[name] = getattr(_DEFAULT, name)
    return msgspec.structs.replace(measured, **changes) if changes else measured


def _impossible(value: Any) -> str:
    """Numbers that no count, time or share has."""
    for number in _numbers(value):
        if not math.isfinite(number) or abs(number) > MOST:
            return f"a value of {number:.4g}"
    return ""


def _numbers(value: Any) -> Iterator[float]:
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, bool) or one is None:
            continue
        if isinstance(one, int | float):
            yield one if abs(one) <= MOST or isinstance(one, float) else math.inf
        elif isinstance(one, list | tuple):
            stack.extend(one)
        elif isinstance(one, dict):
            stack.extend(one.values())
        elif isinstance(one, msgspec.Struct):
            stack.extend(getattr(one, name) for name in one.__struct_fields__)


def _columns(steps: StepColumns) -> str:
    lengths = {name: len(getattr(steps, name)) for name in steps.__struct_fields__ if name != "kind"}
    if len(set(lengths.values())) > 1:
        return f"columns of {min(lengths.values())} and of {max(lengths.values())} steps"
    if steps.kind and len(steps.kind) != len(steps):
        return f"{len(steps.kind)} kinds of {len(steps)} steps"
    for name in ("host_ns", "device_ns", "loader_ns", "gc_ns", "hook_ns"):
        for value in getattr(steps, name):
            if value is not None and not 0 <= value <= LONGEST_STEP_NS:
                return f"{name} of {value:.4g}"
    return _negative("batches", steps.batches) or _negative("compiles", steps.compiles)


def _negative(what: str, values: list[Any]) -> str:
    return f"{what} of {min(values)}" if values and min(values) < 0 else ""


def _trace(trace: Trace) -> str:
    counts = [trace.steps, trace.first_step or 0, trace.kernels or 0]
    if trace.replays and (min(trace.replays) < -1 or max(trace.replays) >= max(len(trace.captures), 1)):
        return "a replay of a capture that is not there"
    return _negative("a count", counts)


def _totals(totals: MemoryTotals) -> str:
    columns = [totals.step, totals.ns, totals.allocated, totals.reserved]
    if len({len(column) for column in columns}) > 1:
        return f"columns of {min(map(len, columns))} and of {max(map(len, columns))} looks"
    if len(totals.step) > MOST_LOOKS:
        return f"{len(totals.step)} looks"
    if any(after < before for before, after in pairwise(totals.step)):
        return "steps that go backwards"
    figures = [value for column in columns for value in column]
    return _negative("a figure", [*figures, totals.peak or 0, totals.limit or 0])


def _failed_model(one: FailedModel) -> str:
    shares = [*(one.forward or ()), one.state_times / MOST_MOMENTS]
    if any(not 0 <= share <= 1 for share in shares):
        return "a share that cannot be"
    if any(count < 1 for _, count in one.weights) or sum(count for _, count in one.weights) > MOST_WEIGHTS:
        return "weights that cannot be"
    sizes = [one.passing, one.before, *(size for size, _ in one.weights)]
    return f"a size of {max(sizes)}" if max(sizes) > MOST_BYTES else _negative("a size", sizes)


def _elapsed(elapsed: Elapsed) -> str:
    parts = [elapsed.start_up, elapsed.after_steps, elapsed.held_up, *elapsed.beside.values()]
    if elapsed.total > LONGEST_NS:
        return f"a total of {elapsed.total:.4g} ns"
    if max(elapsed.start_up, elapsed.after_steps) > elapsed.total:
        return "a part longer than the whole"
    return _negative("a time", [elapsed.total, *parts])


def _later(later: Later) -> str:
    if len(later.slow_step) != len(later.slow_ns):
        return f"{len(later.slow_ns)} times of {len(later.slow_step)} steps"
    if len(later.slow_ns) > later.steps or sum(later.slow_ns) > later.ns or later.ns > LONGEST_NS:
        return f"{len(later.slow_ns)} slow ones among {later.steps} steps"
    return _negative("a count", [later.steps, later.ns, later.first_step, *later.slow_step, *later.slow_ns])


def _telemetry(told: Telemetry) -> str:
    """Clocks, shares, percentages; a temperature may be below zero."""
    for name in ("sm_clock_mhz", "power_w"):
        one = getattr(told, name)
        if one is not None and not 0 <= one.min <= one.mean * (1 + 1e-6) <= one.max * (1 + 2e-6):
            return f"{name} between {one.min:.4g} and {one.max:.4g}, {one.mean:.4g} on average"
    shares = dict(told.throttle or {})
    if told.cpu is not None and told.cpu.in_line_share is not None:
        shares["in_line_share"] = told.cpu.in_line_share
    percentages = ("sm", "tensor", "dram", "fp64", "fp32", "fp16")
    for name in percentages if told.gpm is not None else ():
        value = getattr(told.gpm, name)
        shares |= {name: value / _PERCENT} if value is not None else {}
    for name, share in shares.items():
        if not 0 <= share <= 1 + 1e-6:
            return f"a share of {share:.4g} ({name})"
    plain = [told.max_sm_clock_mhz, told.power_limit_w, told.samples]
    plain += [told.pcie_generation, told.pcie_width, told.memory_used, told.other_processes]
    if told.cpu is not None:
        plain += [told.cpu.cores, told.cpu.others_busy, told.cpu.own_busy, told.cpu.seconds]
        plain += [told.cpu.system_busy, told.cpu.faults]
        plain += [told.cpu.children_wanted, told.cpu.threads, told.cpu.loading_busy, told.cpu.loading_own]
    return _negative("a figure", [value for value in plain if value is not None])


def _ceilings(ceilings: Ceilings) -> str:
    """A ceiling of zero would make every floor endless."""
    figures = [*ceilings.flops.values(), *ceilings.spec_flops.values()]
    figures += [getattr(ceilings, name) for name in ceilings.__struct_fields__[5:]]
    low = min((value for value in figures if isinstance(value, int | float)), default=1.0)
    return "" if low > 0 else f"a ceiling of {low:.4g}"


def _beside(beside: list[Any]) -> str:
    return _negative("a time", [value for one in beside for value in (one.step, one.ns)])


def _positive(value: float) -> str:
    return "" if value > 0 else f"a value of {value:.4g}"


def _not_negative(value: float) -> str:
    return "" if value >= 0 else f"a value of {value:.4g}"


_CHECKS: dict[str, Callable[[Any], str]] = {
    "world_size": lambda value: "" if 1 <= value <= MOST_RANKS else f"a value of {value}",
    "device_kind": lambda value: "" if value in _DEVICE_KINDS else f"{value!r}",
    "steps_seen": _not_negative,
    "warmup": lambda one: _negative("a figure", [one.steps, one.seconds]),
    "steps": _columns,
    "first_timed": _not_negative,
    "beside": _beside,
    "elapsed": _elapsed,
    "later": _later,
    "loader_workers": _not_negative,
    "samples_per_step": _positive,
    "peak_memory": _not_negative,
    "peak_reserved": _not_negative,
    "peak_resident": _not_negative,
    "total_memory": _positive,
    "totals": _totals,
    "failed_model": _failed_model,
    "host_lines": lambda lines: next(
        (f"a share of {x.share:.4g}" for x in lines if not 0 <= x.share <= 1.001), ""
    ),
    "telemetry": _telemetry,
    "ceilings": _ceilings,
    "trace": _trace,
}
