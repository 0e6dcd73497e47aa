"""What a person may adjust about a measurement."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Options:
    """None means: findwall decides."""

    wait: int | None = None  # warm-up steps to let pass, instead of the test
    steps: int | None = None  # steps to time without the profiler
    trace_steps: int = 3
    trace: bool = True
    stop: bool = False  # end the job once the verdict is there
    out: str | None = None  # the run folder, instead of findwall-runs/<script>-<n>
    json: str | None = None
    verdict: bool = True

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def disabled() -> bool:
    """FINDWALL_DISABLE=1 makes `findwall run` a plain `python`."""
    return os.environ.get("FINDWALL_DISABLE", "").strip().lower() not in ("", "0", "false", "no")
