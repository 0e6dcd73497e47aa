"""What figures were measured with. Nothing here touches the device, which jobs may need to themselves."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import findwall

ASKED = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]


def stamp(device: str) -> dict[str, Any]:
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "python": platform.python_version(),
        "torch": version("torch"),
        "findwall": findwall.__version__,  # it may lie beside, installed nowhere
    }
    if device == "cpu":
        return found | {"gpu": None}
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        said = subprocess.run(ASKED, capture_output=True, text=True, timeout=30, check=True).stdout
        gpu, driver = (word.strip() for word in said.splitlines()[0].split(","))
        return found | {"gpu": gpu, "driver": driver}
    return found | {"gpu": None}


def elsewhere() -> dict[str, str]:
    """The environment of a process in another folder: it finds modules where this one does."""
    places = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, places))}
