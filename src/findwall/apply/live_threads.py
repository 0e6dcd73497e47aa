"""How many threads torch's ops use in the job's own process, and libraries in its workers, for fixes that
change it."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY, Call
from findwall.model.machine import Telemetry


def usable_cores() -> int:
    """Those that this process may run on, shared by the ranks of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(cores // int(ranks), 1) if ranks.isdigit() and int(ranks) else cores


def with_threads(telemetry: Telemetry, torch: Any) -> Telemetry:
    """Beside who kept the cores busy, where somebody counted that."""
    cpu = telemetry.cpu
    return replace(telemetry, cpu=cpu and replace(cpu, threads=int(torch.get_num_threads())))


def hold_threads(torch: Any, effect: Effect, fix: str, threads: int) -> None:
    """Set this number, and keep it where the job sets another one. Workers choose for themselves."""
    before, process = torch.get_num_threads(), os.getpid()
    asked: list[int] = []

    def holds(set_threads: Call) -> Call:
        def hold(wanted: int) -> None:
            if os.getpid() != process:
                set_threads(wanted)
                return
            asked.append(wanted)
            effect.at("threads", value=str(threads))
            set_threads(threads)

        return hold

    torch.set_num_threads(threads)
    set_again = functools.partial(torch.set_num_threads, before)
    REGISTRY.wrap(f"threads: {fix}", torch, "set_num_threads", holds, past_end=APPLIED)
    REGISTRY.hold(f"threads: {fix}", "torch.get_num_threads", set_again, past_end=APPLIED)
    effect.at("script", value=str(threads))
    effect.missed(f"torch has {threads} threads here as it is")

    def look() -> str:
        other = next((number for number in (*asked, before) if number != threads), None)
        if other is None or torch.get_num_threads() != threads:
            return ""
        return f"{threads} threads in torch's ops, where there would be {other}"

    effect.at_end(look)


def one_thread_each(worker: int) -> None:
    """A worker has one core: threads of its libraries would take those of the others.

    They have read OMP_NUM_THREADS and the like when they were loaded: in a fork only a call changes them.
    """
    import ctypes
    from pathlib import Path

    blas = [f"{own}openblas_set_num_threads{size}" for own in ("", "scipy_") for size in ("", "64_")]
    loaded = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""
    found = {line.split()[-1] for line in loaded.splitlines() if ".so" in line}
    for path in (one for one in found if any(name in Path(one).name for name in ("blas", "mkl_rt", "omp"))):
        library = ctypes.CDLL(path)
        for name in (*blas, "MKL_Set_Num_Threads", "omp_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(1)


def on_one_thread(then: Callable[[int], None] | None, worker: int) -> None:
    """In a worker, where torch's ops are on one already. The job's own choice comes last, and stands."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for what is loaded from now on
    with contextlib.suppress(AttributeError):  # a cv2 without the switch keeps its threads
        if "cv2" in sys.modules:
            sys.modules["cv2"].setNumThreads(0)
    with contextlib.suppress(Exception):  # fail open: calls into whatever libraries the job has loaded
        one_thread_each(worker)
    if then is not None:
        then(worker)
