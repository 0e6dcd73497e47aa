"""What a person may adjust about a measurement."""

from __future__ import annotations

import os
import re
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
    brief: bool = False  # of the verdict only what matters most is printed
    top: int | None = None  # with a table of so many ops and kernels
    caller: str = "findwall run"  # what a person adjusts: the command, `findwall.measure`, a callback

    def spelled(self, flags: str) -> str:
        """Flags of `findwall run` as the caller writes them: `findwall.measure(wait=2, steps=5)`."""
        if self.caller == "findwall run":
            return flags
        words = re.sub(r"--no-([a-z]+)", r"--\1 False", flags).split()
        pairs = zip(words[::2], words[1::2], strict=True)
        given = (f"{flag.removeprefix('--').replace('-', '_')}={value}" for flag, value in pairs)
        return f"{self.caller}({', '.join(given)})"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def disabled() -> bool:
    """FINDWALL_DISABLE=1 makes `findwall run` a plain `python`."""
    return os.environ.get("FINDWALL_DISABLE", "").strip().lower() not in ("", "0", "false", "no")
