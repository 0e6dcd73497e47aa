"""What figures were measured with. Nothing here touches the device, which jobs may need to themselves."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

ASKED = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]


def stamp(device: str) -> dict[str, Any]:
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "findwall")},
    }
    if device == "cpu":
        return found | {"gpu": None}
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        said = subprocess.run(ASKED, capture_output=True, text=True, timeout=30, check=True).stdout
        gpu, driver = (word.strip() for word in said.splitlines()[0].split(","))
        return found | {"gpu": gpu, "driver": driver}
    return found | {"gpu": None}
