"""One measurement from start to end: all bursts first, while the device is cool, then the sustained runs."""

from __future__ import annotations

import datetime
import functools
import gc
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from findwall.errors import FindwallError, InputError, first_line
from findwall.machine.ceilings import gemm, link, memory
from findwall.machine.ceilings import launch_cost as launch
from findwall.machine.ceilings.clocks_used import Allowance, Clock, DeviceClock, HostClock, Work
from findwall.machine.ceilings.load import measure_quietly
from findwall.machine.ceilings.measured_report import CeilingsReport, CurvePoint, Rate, with_sustained
from findwall.machine.ceilings.numpy_cores import core_name, last_level_cache, measure_without_torch
from findwall.machine.environment import audit, driver_version
from findwall.machine.hardware import SPEC_TOLERANCE, table_ceilings
from findwall.model.machine import Ceilings
from findwall.units import MIB, format_share

# Between two bursts, for the power budget to come back. Chosen by hand, not calibrated.
REST_S = 0.3
# The types training runs in first: what comes later finds a warmer device.
BURST_ORDER = ("bf16", "fp16", "fp8", "tf32", "fp32")


def run_suite(device: str | int | None, budget_s: float, shapes: tuple[gemm.Shape, ...]) -> CeilingsReport:
    allowance = Allowance(budget_s)
    try:
        import torch
    except ImportError:
        if device not in (None, "cpu"):
            raise InputError("A GPU can be measured only where torch is installed.") from None
        return measure_quietly(lambda: measure_without_torch(allowance, shapes), allowance, False, list)
    chosen = _device(torch, device)
    return measure_quietly(
        lambda: _measure(torch, chosen, allowance, shapes),
        allowance,
        chosen.type == "cuda",
        lambda: audit(torch),
    )


def _measure(torch: Any, device: Any, allowance: Allowance, shapes: tuple[gemm.Shape, ...]) -> CeilingsReport:
    suite = Suite(torch, device, allowance)
    try:
        # torch's warning that the cores lack a type comes with a stack of its own: slow figures say it too.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return suite.measure(shapes)
    except RuntimeError as error:
        reason = first_line(error)
        raise FindwallError(f"The ceilings could not be measured: {reason}", _FAILED_HINT) from error


_FAILED_HINT = "Is the device free? Look at: findwall doctor"


def _device(torch: Any, device: str | int | None) -> Any:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(f"cuda:{device}" if isinstance(device, int) else device)
    except RuntimeError as error:
        raise InputError(f"{device} is not a device: {str(error).splitlines()[0]}") from error
    if chosen.type not in ("cuda", "cpu"):
        raise InputError(f"findwall measures GPUs and CPUs, not {chosen.type}.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(f"torch sees no device {chosen}.", "Look at: findwall doctor")
    return torch.device("cuda", chosen.index or 0) if chosen.type == "cuda" else chosen


class Suite:
    """The device, its clock, and what has been found out so far."""

    def __init__(self, torch: Any, device: Any, allowance: Allowance) -> None:
        self.torch = torch
        self.device = device
        self.allowance = allowance
        self.on_gpu = device.type == "cuda"
        self.clock: Clock = (
            DeviceClock(torch, device) if self.on_gpu else HostClock(allowance.burst_s, allowance.now)
        )
        self.notes: list[str] = []
        if self.on_gpu:
            torch.cuda.set_device(device)
        self.name = torch.cuda.get_device_name(device) if self.on_gpu else core_name()
        self.cache_bytes = self._cache_bytes()

    def measure(self, shapes: tuple[gemm.Shape, ...]) -> CeilingsReport:
        shapes = gemm.checked_shapes(shapes, self._free_bytes())
        works = self._matmuls()
        matmul = self._matmul_bursts(works)
        own = self._own_shapes(shapes, matmul)
        memory_rates = self._try("memory bandwidth", self._memory, [])
        matmul = self._matmul_sustained(works, matmul)
        works.clear()
        self._collect()
        curve = self._try("the roofline's curve", lambda: self._curve(matmul), [])
        launches = self._launches()
        copies = self._try("host copies", self._copies, [])
        links = self._try("all-reduce", self._links, [])
        return self._report(matmul, memory_rates, copies, launches, links, own, curve)

    # Matmuls.

    def _matmuls(self) -> dict[str, tuple[Work, gemm.Shape]]:
        kinds, notes = gemm.math_types(self.torch, self.device)
        self.notes += notes
        works = {}
        for kind in sorted(kinds, key=BURST_ORDER.index):
            work = self._try(f"{kind} matmul", functools.partial(self._square, kind), None)
            if work is not None:
                works[kind] = work
        return works

    def _square(self, kind: str) -> tuple[Work, gemm.Shape]:
        with gemm.fp32_precision(self.torch, kind == "tf32"):
            free = self._free_bytes()
            side = gemm.fitting_side(self.torch, self.device, self.clock, kind, free)
            shape = (side, side, side)
            work = gemm.matmul(self.torch, self.device, kind, shape)
            work()
        return work, shape

    def _matmul_bursts(self, works: dict[str, tuple[Work, gemm.Shape]]) -> dict[str, Rate]:
        flush = self._flush()
        rates = {}
        for kind, (work, shape) in works.items():
            self._rest()
            with gemm.fp32_precision(self.torch, kind == "tf32"):
                rates[kind] = gemm.burst(self.clock, kind, work, shape, flush)
        return rates

    def _rest(self) -> None:
        """Let the power budget that the last burst used up come back: a burst is of a rested device."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)
            time.sleep(REST_S)

    def _matmul_sustained(
        self, works: dict[str, tuple[Work, gemm.Shape]], rates: dict[str, Rate]
    ) -> dict[str, Rate]:
        for kind, (work, (m, n, k)) in works.items():
            if self._out_of_time(f"sustained {kind}"):
                break
            with gemm.fp32_precision(self.torch, kind == "tf32"):
                seconds = self.clock.run(work, self.allowance.sustained_s)
            rates[kind] = with_sustained(rates[kind], 2.0 * m * n * k / seconds)
        return rates

    def _own_shapes(self, shapes: tuple[gemm.Shape, ...], matmul: dict[str, Rate]) -> list[Rate]:
        kind = self._training_type(matmul)
        flush = self._flush() if shapes else None
        rates = []
        for shape in shapes:
            if self._too_long(shape, matmul.get(kind)):
                continue
            work = gemm.matmul(self.torch, self.device, kind, shape)
            rates.append(gemm.burst(self.clock, kind, work, shape, flush))
        return rates

    def _too_long(self, shape: gemm.Shape, known: Rate | None) -> bool:
        m, n, k = shape
        flops = known.burst if known is not None else None
        if not flops or 2.0 * m * n * k / flops <= self.allowance.left_s:
            return False
        self.notes.append(f"Not measured for lack of time: {m} x {n} x {k}. Give it more with --budget.")
        return True

    # Memory, copies, launches, links.

    def _memory(self) -> list[Rate]:
        size = memory.buffer_bytes(self.cache_bytes, self._free_bytes(), self.on_gpu)
        works = memory.device_memory(self.torch, self.device, size)
        works, rates = memory.better_copy(works, memory.bandwidth_bursts(self.clock, works))
        for name, (work, moved, _) in works.items():
            if self._out_of_time(f"sustained {name}"):
                break
            seconds = self.clock.run(work, self.allowance.sustained_s)
            rates[name] = with_sustained(rates[name], moved / seconds)
        self._collect()
        return list(rates.values())

    def _curve(self, matmul: dict[str, Rate]) -> list[CurvePoint]:
        if self._out_of_time("the roofline's curve"):
            return []
        kind = self._training_type(matmul)
        side = memory.CURVE_SIDE if self.on_gpu else memory.CORE_CURVE_SIDE
        return memory.intensity_curve(self.torch, self.device, self.clock, kind, side, self.allowance)

    def _launches(self) -> list[Rate]:
        rates = [launch.eager_launch(self.torch, self.device)]
        if self.on_gpu:
            graph = self._try(
                "launches in a graph", lambda: launch.graph_launch(self.torch, self.device, self.clock), None
            )
            rates += [graph] if graph is not None else []
        return rates

    def _copies(self) -> list[Rate]:
        return memory.host_copies(self.torch, self.device) if self.on_gpu else []

    def _links(self) -> list[Rate]:
        found = link.all_reduce(self.torch) if self.on_gpu and not self._out_of_time("all-reduce") else None
        return [] if found is None else [found]

    # Small things.

    def _training_type(self, matmul: dict[str, Rate]) -> str:
        return next((kind for kind in ("bf16", "fp16") if kind in matmul and self.on_gpu), "fp32")

    def _cache_bytes(self) -> int:
        known = table_ceilings(self.name).l2_bytes
        if known is not None:
            return known
        if not self.on_gpu:
            return last_level_cache()
        return int(getattr(self.torch.cuda.get_device_properties(self.device), "L2_cache_size", 64 * MIB))

    def _flush(self) -> Work | None:
        """Read through more than the cache holds: it is then full of clean, foreign lines."""
        if not self.on_gpu:
            return None
        filler = self.torch.ones(max(3 * self.cache_bytes, 256 * MIB) // 4, device=self.device)
        total = self.torch.empty((), device=self.device)
        return lambda: self.torch.sum(filler, dim=0, out=total)

    def _free_bytes(self) -> int:
        if self.on_gpu:
            return int(self.torch.cuda.mem_get_info(self.device)[0])
        import psutil

        return int(psutil.virtual_memory().available)

    def _collect(self) -> None:
        gc.collect()
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def _out_of_time(self, what: str) -> bool:
        if self.allowance.left_s > self.allowance.sustained_s:
            return False
        self.notes.append(f"Not measured, for lack of time: {what}.")
        return True

    def _try(self, what: str, measure: Callable[[], Any], otherwise: Any) -> Any:
        """Old drivers, old torch and small cards lack this or that: the rest is still worth having."""
        try:
            return measure()
        except (RuntimeError, AttributeError, TypeError, ValueError, NotImplementedError) as error:
            self.notes.append(f"Could not measure {what}: {first_line(error)}")
            return otherwise

    def _report(
        self,
        matmul: dict[str, Rate],
        memory_rates: list[Rate],
        copies: list[Rate],
        launches: list[Rate],
        links: list[Rate],
        own: list[Rate],
        curve: list[CurvePoint],
    ) -> CeilingsReport:
        driver = driver_version() or "" if self.on_gpu else ""
        created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        everything = [*matmul.values(), *memory_rates, *copies, *launches, *links]
        origin = f"measured on {created[:10]} with torch {self.torch.__version__}" + (
            f", driver {driver}" if driver else ""
        )
        ceilings, notes = combine(self.name, everything, origin, self.on_gpu)
        if self.on_gpu:
            cores = self.torch.cuda.get_device_properties(self.device).multi_processor_count
            ceilings = msgspec.structs.replace(ceilings, l2_bytes=self.cache_bytes, sm_count=cores)
        return CeilingsReport(
            ceilings=ceilings,
            driver=driver,
            torch=str(self.torch.__version__),
            created=created,
            seconds=self.allowance.spent_s,
            matmul=tuple(matmul.values()),
            memory=tuple(memory_rates),
            copies=tuple(copies),
            launches=tuple(launches),
            links=tuple(links),
            shapes=tuple(own),
            curve=tuple(curve),
            notes=(*self.notes, *notes),
        )


def combine(device: str, rates: Iterable[Rate], origin: str, on_gpu: bool) -> tuple[Ceilings, list[str]]:
    """Ceilings from rates: what was measured, refused where it beats the datasheet, then the table's rest.

    A GPU's ceiling is the sustained figure. Cores are shared with everything else that runs, which can only
    take away: their ceiling is the better of both.
    """
    table = table_ceilings(device)
    notes: list[str] = []
    figures: dict[str, float] = {}
    for rate in rates:
        spec = (
            table.spec_bandwidth
            if rate.name in ("read", "write", "copy")
            else table.spec_flops.get(rate.name)
        )
        figure = rate.figure if on_gpu or rate.unit == "s" else max(rate.burst or 0.0, rate.sustained or 0.0)
        if not figure:
            continue
        if spec is not None and figure > spec * SPEC_TOLERANCE:
            notes.append(f"Refused: {rate.name} came out at {format_share(figure / spec)} of the datasheet.")
            continue
        figures[rate.name] = figure
    measured = {name: value for name, value in figures.items() if name in _MATH}
    rest = {kind: value for kind, value in table.flops.items() if kind not in measured}
    if rest:
        origin += f"; {', '.join(sorted(rest))} from the table"
    ceilings = Ceilings(
        device=device,
        source="measured",
        origin=origin,
        flops={**rest, **measured},
        spec_flops=table.spec_flops,
        bandwidth=figures.get("copy", figures.get("triad", table.bandwidth)),
        spec_bandwidth=table.spec_bandwidth,
        l2_bytes=table.l2_bytes,
        sm_count=table.sm_count,
        h2d_pinned=figures.get("h2d pinned"),
        h2d_pageable=figures.get("h2d pageable"),
        launch_s=figures.get("eager launch"),
        graph_launch_s=figures.get("graph launch"),
        link_bandwidth=figures.get("all-reduce"),
    )
    return ceilings, notes


_MATH = frozenset({"fp32", "tf32", "fp16", "bf16", "fp8"})
