"""Run the ops of a plan on this device as fixes would run them, and time each.

Random data of the recorded shapes, types and strides, the cache flushed before each run, the device's own
clock. An op that cannot be run here is left out and noted, and no more are begun once the time is up.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from findwall.errors import FindwallError, InputError, first_line
from findwall.machine.ceilings.clocks_used import Work
from findwall.machine.ceilings.gemm import fp32_precision
from findwall.machine.ceilings.numpy_cores import core_name, last_level_cache
from findwall.machine.environment import driver_version
from findwall.model.probes import Probe, Probes
from findwall.probe.probe_ops import Maker
from findwall.probe.probed_rewrites import Forms, form_work, is_rewrite
from findwall.units import MIB, NS_PER_S

BUDGET_S = 20.0
WARM_RUNS, TIMED_RUNS = 2, 7
# Of one op: a long one is timed less often.
LONGEST_OP_S = 0.3
FLUSH_CACHES = 4  # times the cache: what is written over it before each run
AHEAD_RATIO = 1.5  # times what a call takes the host: what the device is kept busy for, so that it is ahead

Progress = Callable[[int, int], None]


class Target:
    """The device to probe, by the names that probes are kept under."""

    def __init__(self, torch: Any, on_gpu: bool) -> None:
        self.torch = torch
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.gpu = torch.cuda.get_device_name(self.device) if on_gpu else core_name()
        self.driver = (driver_version() or "") if on_gpu else ""
        self.version = str(torch.__version__)


def find_target(device_kind: str, device_name: str | None) -> Target:
    """The device here that is the one the job ran on; InputError says why there is none."""
    what = device_name or ("a GPU" if device_kind == "gpu" else "the CPU")
    try:
        import torch
    except ImportError:
        raise InputError(
            "torch is not installed here, and a probe runs the job's ops with it.",
            "Run `findwall probe` with the Python that runs the job.",
        ) from None
    on_gpu = device_kind == "gpu"
    if on_gpu and not torch.cuda.is_available():
        raise InputError(
            f"The job ran on {what}, and torch sees no GPU here.",
            "Run `findwall probe` on the machine that runs the job.",
        )
    target = Target(torch, on_gpu)
    if device_name and target.gpu != device_name:
        raise InputError(
            f"The job ran on {what}, and this machine has {target.gpu}: its ops take other times here.",
            "Run `findwall probe` on the machine that runs the job.",
        )
    return target


def run_probes(
    target: Target,
    plan: Sequence[Probe],
    known: Probes | None = None,
    budget_s: float = BUDGET_S,
    progress: Progress | None = None,
    forms: Forms | None = None,
) -> Probes:
    """Time every op of the plan that is not known already; what was known is kept. `forms`: where those of
    rewrites are."""
    begun = time.perf_counter()
    ns = dict(known.ns) if known is not None else {}
    skipped: dict[str, str] = {}
    runner = _Runner(target, forms)
    fresh = [probe for probe in plan if probe.key not in ns]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at, probe in enumerate(fresh):
            if time.perf_counter() - begun > budget_s:
                skipped |= {late.key: f"{budget_s:.0f} s were over" for late in fresh[at:]}
                break
            try:
                ns[probe.key] = runner.time(probe)
            except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, InputError) as error:
                skipped[probe.key] = first_line(error)
                runner.recover(error)
            if progress is not None:
                progress(at + 1, len(fresh))
    runner.close()
    return Probes(
        gpu=target.gpu,
        driver=target.driver,
        torch=target.version,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        ns=ns,
        skipped=skipped,
        seconds=time.perf_counter() - begun,
    )


class _Runner:
    """The device, its clock, and what is written over its cache."""

    def __init__(self, target: Target, forms: Forms | None) -> None:
        self.torch, self.device, self.forms = target.torch, target.device, forms
        self.on_gpu = self.device.type == "cuda"
        self.maker = Maker(self.torch, self.device)
        self._over = self.torch.empty(
            self._cache_bytes() * FLUSH_CACHES, dtype=self.torch.int8, device=self.device
        )
        self._flush_s = self._time_flush()

    def time(self, probe: Probe) -> float:
        """Nanoseconds of one run, the median of a few."""
        with self._settings(probe.variant.split("+")):
            work = self._work(probe)
            host_s, device_s = self._warm(work)
            repeats = max(1, min(TIMED_RUNS, int(LONGEST_OP_S / max(device_s, 1e-6))))
            times = (
                self._device_times(work, repeats, host_s) if self.on_gpu else self._host_times(work, repeats)
            )
        del work
        return max(statistics.median(times) * NS_PER_S, 1.0)

    def _work(self, probe: Probe) -> Work:
        if is_rewrite(probe):
            return form_work(self.torch, self.device, probe, self.forms)
        return self.maker.work(probe)

    def _warm(self, work: Work) -> tuple[float, float]:
        """What a call takes the host, and with the device."""
        host_s = whole_s = 0.0
        for _ in range(WARM_RUNS):
            begun = time.perf_counter()
            work()
            host_s = time.perf_counter() - begun
            self._synchronize()
            whole_s = time.perf_counter() - begun
            if whole_s > LONGEST_OP_S:  # cores that emulate a type: one more run must do
                break
        return host_s, whole_s

    def _device_times(self, work: Work, repeats: int, host_s: float) -> list[float]:
        event = self.torch.cuda.Event
        fills = 1 + int(AHEAD_RATIO * host_s / self._flush_s)
        pairs = []
        for _ in range(repeats):
            for _ in range(fills):
                self._over.zero_()
            begin, end = event(enable_timing=True), event(enable_timing=True)
            begin.record()
            work()
            end.record()
            pairs.append((begin, end))
        self._synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]

    def _host_times(self, work: Work, repeats: int) -> list[float]:
        times = []
        for _ in range(repeats):
            self._over.zero_()
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
        return times

    def _time_flush(self) -> float:
        self._over.zero_()
        self._synchronize()
        begun = time.perf_counter()
        self._over.zero_()
        self._synchronize()
        return time.perf_counter() - begun

    @contextlib.contextmanager
    def _settings(self, variant: list[str]) -> Iterator[None]:
        """TF32 and cuDNN's trials as the variant says; then as they were."""
        cudnn = self.torch.backends.cudnn
        before = cudnn.benchmark
        cudnn.benchmark = "tuned" in variant
        tf32 = "tf32" in variant
        try:
            with fp32_precision(self.torch, tf32), _conv_precision(self.torch, tf32):
                yield
        finally:
            cudnn.benchmark = before

    def recover(self, error: Exception) -> None:
        """After an op that failed: give back what it took. A broken context answers no more."""
        error.__traceback__ = None
        gc.collect()
        try:
            if self.on_gpu:
                self.torch.cuda.empty_cache()
                self.torch.cuda.synchronize(self.device)
        except RuntimeError as broken:
            raise FindwallError(
                f"The device stopped answering after an op failed: {first_line(broken)}",
                "Run `findwall probe` again; what was probed before is kept.",
            ) from error

    def close(self) -> None:
        self._over = None
        if self.on_gpu:
            self.torch.cuda.empty_cache()

    def _synchronize(self) -> None:
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def _cache_bytes(self) -> int:
        if not self.on_gpu:
            return last_level_cache()
        found = getattr(self.torch.cuda.get_device_properties(self.device), "L2_cache_size", 0)
        return int(found) or 64 * MIB


@contextlib.contextmanager
def _conv_precision(torch: Any, tf32: bool) -> Iterator[None]:
    """TF32 on or off for convolutions, whichever of the two ways this torch has; then as it was."""
    cudnn = torch.backends.cudnn
    newer = hasattr(getattr(cudnn, "conv", None), "fp32_precision")
    flags, name = (cudnn.conv, "fp32_precision") if newer else (cudnn, "allow_tf32")
    before = getattr(flags, name)
    setattr(flags, name, ("tf32" if tf32 else "ieee") if newer else tf32)
    try:
        yield
    finally:
        setattr(flags, name, before)
