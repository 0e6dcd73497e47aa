"""The peaks of memory, apart for what comes before the first batch, forward and backward, and the optimizer.

Each of them follows a line of its own as batches grow: the largest of several lines is no line. Told apart in
the first steps; of those that follow the largest alone is known.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from findwall.apply.registry import COMPARES, REGISTRY, STEP_POST_HOOK, STEP_PRE_HOOK, undo_all
from findwall.machine.peak_meters import DeviceMeter, ResidentMeter
from findwall.machine.torch_device import counts_memory, device_in_use
from findwall.model.arms import Peaks
from findwall.model.measurement import Measurement

BY = "peaks by phase"
WATCHED = 8  # steps: state is made in the first, and nothing is as it stays before the second. By hand.

Meter = DeviceMeter | ResidentMeter


class StepPeaks:
    """Reads and forgets the peak where one phase ends and the next begins."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._meter: Meter | None = None
        self._peaks = Peaks()
        self._left = WATCHED
        optimizers = importlib.import_module("torch.optim.optimizer")
        hook = optimizers.register_optimizer_step_pre_hook(lambda *_: self._safely(self._begins))
        self._puts = [REGISTRY.hold(BY, STEP_PRE_HOOK, hook.remove, past_end=COMPARES)]
        hook = optimizers.register_optimizer_step_post_hook(lambda *_: self._safely(self._ends))
        self._puts.append(REGISTRY.hold(BY, STEP_POST_HOOK, hook.remove, past_end=COMPARES))

    def first_batch(self) -> None:
        """The job is set up; later ones say nothing."""
        if self._meter is None:
            self._safely(self._set_up)

    def told(self, measured: Measurement) -> Peaks:
        """Larger peaks in later steps are of the phase that is largest in the first, as far as anybody
        knows; on the cores they are of what the C library keeps, where it gave that back before."""
        undo_all(self._puts)  # not before: torch goes through them while it calls one
        device = measured.device_kind != "cpu"
        peaks, later = self._peaks, measured.peak_memory if device else measured.peak_resident
        if peaks.of == "unknown":
            peaks = replace(peaks, of="allocated" if device else "resident")
        if device:
            peaks = replace(peaks, reserved=max(peaks.reserved or 0, measured.peak_reserved or 0) or None)
        if not device and peaks.working is not None:
            return replace(peaks, reserved=max(peaks.whole or 0, (later or 0) + peaks.beside))
        if later is None or later <= (peaks.whole or 0):
            return peaks
        if peaks.optimizer is not None and peaks.optimizer > (peaks.working or 0):
            return replace(peaks, optimizer=later)
        return replace(peaks, working=later)

    def _safely(self, look: Any) -> None:
        with suppress(Exception):  # a look: it may not break the job, and what fails is unknown
            if self._left:
                look()

    def _set_up(self) -> None:
        self._choose()
        if self._meter is not None:
            self._note("set_up", self._meter.take_peak())
            self._peaks = replace(self._peaks, held=self._meter.now())  # in a job without an optimizer always

    def _choose(self) -> None:
        """Where the job computes may be known at its first step only."""
        device = device_in_use(self._torch)
        if device is None:
            self._meter = ResidentMeter()
        elif counts_memory(self._torch):
            self._meter = DeviceMeter(self._torch, device)
        if self._meter is not None and self._meter.of != self._peaks.of:
            self._peaks = Peaks(of=self._meter.of, limit=self._meter.limit())

    def _begins(self) -> None:
        if isinstance(self._meter, ResidentMeter | None):
            self._choose()
        if self._meter is not None:
            self._note("working", self._meter.take_peak())

    def _ends(self) -> None:
        meter = self._meter
        if meter is None:
            return
        self._left -= 1
        self._note("optimizer", meter.take_peak())
        known, limit = self._peaks.limit, meter.limit()
        limit = known if limit is None else min(limit, known or limit)
        self._peaks = replace(self._peaks, held=meter.now(), limit=limit)
        beside = meter.beside()
        if beside is not None:
            workers, waiting = self._peaks.workers or 0, self._peaks.waiting or 0
            most = max(beside.own, workers), max(beside.waiting, waiting)
            self._peaks = replace(self._peaks, workers=most[0], waiting=most[1])

    def _note(self, phase: str, peak: int) -> None:
        known = getattr(self._peaks, phase)
        reserved = self._meter.reserved if self._meter is not None else None
        self._peaks = replace(self._peaks, **{phase: max(peak, known or 0), "reserved": reserved})
