"""Code is compiled again inside the step because what it sees keeps changing.

What it finds:
Idle time in torch.compile's frontend and backends, Triton and CUDA module loading while steps run.

Why it costs:
Compiling takes from tenths of seconds to minutes; a kernel takes microseconds. A guard that fails on
every new sequence length compiles again and again, up to the recompile limit, and then runs eagerly.

How it is told apart:
By the compiler's own ranges (compile_inner, backend_compile, inductor, cuModuleLoad, lazy loading).
The first steps always compile: that is warm-up. A compiled region that leaves its graph is graph-breaks.

What helps:
static-shapes: dynamic=True or mark_dynamic for the dimension that changes, padding to a few fixed
lengths, no Python numbers that change from step to step in compiled code (TORCH_LOGS=recompiles names the
guard).
"""

from __future__ import annotations

import re

from findwall.attribute.facts import Facts
from findwall.attribute.figures import gain, opening
from findwall.attribute.waits import Wait, rows_named, wait_evidence, waits
from findwall.model.diagnosis import Evidence
from findwall.model.events import Kind
from findwall.structure.host import COMPILE

CAUSE = "recompilation"
TEENS = range(10, 21)  # 11th, 12th and 13th, unlike 21st, 22nd and 23rd
_FRAME_ID = re.compile(r"compile_id=(\d+)/(\d+)")


def evidence(facts: Facts) -> list[Evidence]:
    return wait_evidence(_calls(facts))


def sentence(facts: Facts) -> str:
    calls = _calls(facts)
    ids = [found for found in (_FRAME_ID.search(name) for name in facts.timeline.names) if found]
    again = max((int(found[2]) for found in ids), default=0)
    which = f" (one function for the {_ordinal(again + 1)} time)" if again else ""
    where = next((f" at {wait.line}" for wait in calls if wait.line), "")
    return (
        f"{opening(facts, CAUSE)} are idle because code is compiled inside the step{where}{which}; compile "
        "with "
        f"dynamic=True or keep shapes fixed (TORCH_LOGS=recompiles names the guard): {gain(facts, CAUSE)}."
    )


def _calls(facts: Facts) -> list[Wait]:
    kinds = (Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)
    return waits(facts, CAUSE, rows_named(facts, COMPILE, *kinds))


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in TEENS else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
