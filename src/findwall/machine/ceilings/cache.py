"""Measured ceilings, kept by GPU, driver and torch under the user's cache folder. Needs no torch."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.files import read_small, write_atomically
from findwall.machine.ceilings.measured_report import SCHEMA, CeilingsReport
from findwall.machine.hardware import check_ceilings
from findwall.model.machine import Ceilings


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The standard says that a relative path there is to be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "findwall" / "ceilings"


def path_of(report: CeilingsReport) -> Path:
    """One file for one combination of device, driver and torch; the name is for people, the hash decides."""
    key = "\n".join((report.ceilings.device, report.driver, report.torch))
    label = re.sub(r"[^A-Za-z0-9]+", "-", report.ceilings.device).strip("-")[:60]
    return folder() / f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


def store(report: CeilingsReport) -> Path | None:
    """Write the report whole or not at all; None where the folder cannot be written.

    Nor is one in doubt kept in the place of one that is not.
    """
    path = path_of(report)
    if report.ceilings.doubt and any(
        path_of(kept) == path and not kept.ceilings.doubt for kept in _reports()
    ):
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(report), indent=1))
    except OSError:
        return None
    return path


def cached_report(
    device: str, driver: str | None = None, torch_version: str | None = None
) -> CeilingsReport | None:
    """The newest report of exactly this device; driver and torch must match where they are given.

    One in doubt only where there is no other.
    """
    found = [
        report
        for report in _reports()
        if report.ceilings.device == device
        and driver in (None, report.driver)
        and torch_version in (None, report.torch)
    ]
    return max(found, key=lambda report: (not report.ceilings.doubt, report.created), default=None)


def cached_ceilings(
    device: str, driver: str | None = None, torch_version: str | None = None
) -> Ceilings | None:
    """What was measured on this machine for this device, or None."""
    report = cached_report(device, driver, torch_version)
    return None if report is None else report.ceilings


def kept_gpus() -> list[Ceilings]:
    """What was measured of GPUs on this machine, the best of each, newest first."""
    names = {report.ceilings.device for report in _reports()}
    best = [cached_report(name) for name in names]
    kept = [one for one in best if one is not None and not one.ceilings.of_cores]
    found = sorted(kept, key=lambda one: one.created, reverse=True)
    return [report.ceilings for report in found]


def _reports() -> Iterator[CeilingsReport]:
    try:
        paths = sorted(folder().glob("*.json"))
    except OSError:
        return
    for path in paths:
        # A cache may hold anything (an older findwall, a full disk): what cannot be trusted is not there.
        try:
            raw = msgspec.json.decode(read_small(path))
            report = msgspec.convert(raw, CeilingsReport)
            if report.schema == SCHEMA and not _lacks_fp16(report):
                checked = check_ceilings(raw["ceilings"], path.name)
                yield msgspec.structs.replace(report, ceilings=checked)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, InputError, RecursionError):
            continue


def _lacks_fp16(report: CeilingsReport) -> bool:
    """Whether it is of cores, and from a findwall that did not yet ask torch how fast they are in fp16. One
    that could not measure it has a note."""
    asked = "fp16" in report.ceilings.flops or any("fp16" in note for note in report.notes)
    return report.ceilings.of_cores and bool(report.torch) and not asked
