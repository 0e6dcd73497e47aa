"""Probes kept by GPU, driver and torch beside the measured ceilings. Needs no torch."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from findwall.errors import InputError
from findwall.files import read_small, write_atomically
from findwall.machine.ceilings.cache import folder as ceilings_folder
from findwall.model.probes import Probes, read_probes


def path_of(gpu: str, driver: str, torch_version: str) -> Path:
    """One file for one combination of device, driver and torch; the name is for people, the hash decides."""
    key = "\n".join((gpu, driver, torch_version))
    label = re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-")[:60]
    name = f"{label}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    return ceilings_folder().with_name("probes") / name


def kept_probes(gpu: str, driver: str, torch_version: str) -> Probes | None:
    """What was probed of this device with this driver and torch; None where nothing can be trusted."""
    try:
        found = read_probes(read_small(path_of(gpu, driver, torch_version)))
    except (OSError, InputError):
        return None
    same = (found.gpu, found.driver, found.torch) == (gpu, driver, torch_version)
    return found if same else None


def store(probes: Probes, path: Path) -> bool:
    """Write them whole or not at all; False where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(probes))
    except OSError:
        return False
    return True
