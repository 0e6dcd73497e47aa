"""What a person may adjust about a measurement."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

# Who asks for a measurement; trainers' callbacks say their own name.
COMMAND = "findwall run"
LOOP = "findwall.measure"


Last = Literal["timing", "lines", "control"]


@dataclass(frozen=True, slots=True)
class Options:
    """None means: findwall decides."""

    wait: int | None = None  # warm-up steps to let pass, instead of the test
    steps: int | None = None  # steps to time without the profiler
    trace_steps: int = 3
    trace: bool = True
    trace_ranks: str | None = None  # of several: "all", how many, or which ("0,3,8-11")
    memory: bool = False  # record what the allocator does, beside the trace
    stop: bool = False  # end the job once the verdict is there
    out: str | None = None  # the run folder, instead of findwall-runs/<script>-<n>
    json: str | None = None
    verdict: bool = True
    last: Last = "control"  # the stage it ends after
    brief: bool = False  # of the verdict only what matters most is printed
    top: int | None = None  # with a table of so many ops and kernels
    apply: tuple[str, ...] = ()  # fixes that are made in the job without an edit
    probe: bool = False  # once the job has ended: run its ops as fixes would run them
    caller: str = COMMAND  # what a person adjusts: the command, `findwall.measure`, a callback

    def spelled(self, flags: str) -> str:
        """What a person writes to have these flags: `findwall run --wait 2 …`, `findwall.measure(wait=2)`."""
        if self.caller == COMMAND:
            return f"{COMMAND} {flags} …"
        words = re.sub(r"--no-([a-z]+)", r"--\1 False", flags).split()
        pairs = zip(words[::2], words[1::2], strict=True)
        given = (f"{flag.removeprefix('--').replace('-', '_')}={value}" for flag, value in pairs)
        return f"{self.caller}({', '.join(given)})"

    @property
    def why_no_trace(self) -> str:
        """Why there is no trace where none was wanted, and how there is one."""
        given = "--no-trace" if self.caller == COMMAND else self.spelled("--no-trace")
        return f"{given} was given; leave it out"

    @property
    def more_steps(self) -> str:
        """What gives findwall steps it can find, as the caller would write it."""
        return {
            COMMAND: "Run more of them, or mark steps: with findwall.measure() as m: ... m.step()",
            LOOP: "Run more of them, and call m.step() at the end of each step",
        }.get(self.caller, f"Train for more steps with {self.caller}")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def disabled() -> bool:
    """FINDWALL_DISABLE=1 makes `findwall run` a plain `python`."""
    return os.environ.get("FINDWALL_DISABLE", "").strip().lower() not in ("", "0", "false", "no")
