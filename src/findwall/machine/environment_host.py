"""The host side of the audit: how many cores the job may really use, and how its workers pass batches."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from findwall.machine.neighbours import usable
from findwall.model.catalogue import WORTH_IT
from findwall.model.machine import Finding
from findwall.units import GIB, format_share

# Docker's default of 64 MiB breaks or slows loader workers; from about 1 GiB on nobody complains.
SMALL_SHM = GIB
CPU = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # as control groups of the first version name it


@dataclass(frozen=True)
class Host:
    """Where the audit looks; tests give it another root, environment and set of cores."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    affinity: frozenset[int] | None = field(default_factory=usable)

    def read(self, path: str) -> str | None:
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip()
        except OSError:
            return None


def look_at_host(host: Host, torch: Any = None) -> Iterable[Finding]:
    yield from _look_at_cores(host, torch)
    yield from _look_at_throttling(host)
    yield from _look_at_shm(host)


def cpu_quota(host: Host) -> float | None:
    """Cores' worth of time the control group allows, the tightest of all above it; None without a limit."""
    limits = [
        limit
        for group in groups_of(host)
        for limit in (_quota_v2(host, group), _quota_v1(host, group))
        if limit is not None
    ]
    return min(limits, default=None)


def usable_cores(host: Host) -> float:
    """What this process can really use: cores, affinity and quota together."""
    cores = float(len(host.affinity)) if host.affinity else float(host.cores)
    quota = cpu_quota(host)
    return cores if quota is None else min(cores, quota)


def groups_of(host: Host, controllers: tuple[str, ...] = CPU) -> list[str]:
    """The process's control groups and all above them, as paths. Inside a container often only the root."""
    groups = {""}
    for line in (host.read("/proc/self/cgroup") or "").splitlines():
        _, _, tail = line.partition(":")
        named, _, path = tail.partition(":")
        if named in ("", *controllers):
            parts = [part for part in path.split("/") if part and part != ".."]
            groups |= {"/".join(parts[:depth]) for depth in range(len(parts) + 1)}
    return sorted(groups)


def _quota_v2(host: Host, group: str) -> float | None:
    words = (host.read(f"/sys/fs/cgroup/{group}/cpu.max") or "").split()
    return _ratio(*words) if len(words) == 2 else None


def _quota_v1(host: Host, group: str) -> float | None:
    for base in ("cpu", "cpu,cpuacct"):
        quota = host.read(f"/sys/fs/cgroup/{base}/{group}/cpu.cfs_quota_us")
        period = host.read(f"/sys/fs/cgroup/{base}/{group}/cpu.cfs_period_us")
        if quota and period:
            return _ratio(quota, period)
    return None


def _ratio(quota: str, period: str) -> float | None:
    try:
        allowed, every = int(quota), int(period)
    except ValueError:  # "max"
        return None
    return allowed / every if allowed > 0 and every > 0 else None


def _look_at_cores(host: Host, torch: Any) -> Iterable[Finding]:
    usable = usable_cores(host)
    whole = max(1, math.floor(usable))
    quota = cpu_quota(host)
    threads, where = _threads(host, torch)
    if threads is not None and threads > math.ceil(usable):
        yield Finding(
            "too-many-threads",
            "warning",
            f"{where} is {threads}, but this process may use {usable:g} cores, so they get in each other's "
            "way.",
            f"OMP_NUM_THREADS={whole}",
        )
    if quota is not None and quota < host.cores:
        yield Finding(
            "cpu-quota",
            "info",
            f"The container may use {quota:g} cores' worth of time; programs see {host.cores}.",
            f"size loader workers and OMP_NUM_THREADS by {whole}, not by os.cpu_count()",
        )
    if host.affinity and len(host.affinity) < host.cores:
        sentence = f"This process is bound to {len(host.affinity)} of {host.cores} cores."
        yield Finding(
            "cpu-affinity", "info", sentence, "ask the scheduler for more cores if the host is the wall"
        )


def _threads(host: Host, torch: Any) -> tuple[int | None, str]:
    if torch is not None:
        return int(torch.get_num_threads()), "torch's number of threads"
    given = host.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return (int(given), "OMP_NUM_THREADS") if given.isdigit() else (None, "")


def _look_at_throttling(host: Host) -> Iterable[Finding]:
    for group in groups_of(host):
        words = (host.read(f"/sys/fs/cgroup/{group}/cpu.stat") or "").split()
        pairs = dict(zip(words[::2], words[1::2], strict=False))
        try:
            periods, throttled = int(pairs["nr_periods"]), int(pairs["nr_throttled"])
        except (KeyError, ValueError):
            continue
        if periods > 0 and throttled / periods > WORTH_IT:
            share = format_share(throttled / periods)
            sentence = (
                f"The container hit its CPU limit in {share} of all periods: its threads were stopped then."
            )
            yield Finding("cpu-throttled", "warning", sentence, "raise the CPU limit, or use fewer threads")
            return


def _look_at_shm(host: Host) -> Iterable[Finding]:
    try:
        total = shutil.disk_usage(host.root / "dev/shm").total
    except OSError:
        return
    if 0 < total < SMALL_SHM:
        sentence = f"/dev/shm holds {total / GIB:.2f} GiB: loader workers pass their batches through it."
        yield Finding("small-shm", "warning", sentence, "docker run --shm-size=8g (or --ipc=host)")
