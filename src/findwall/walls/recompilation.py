"""Code is compiled, or a library sets itself up, inside the step because what it sees keeps changing.

What it finds:
Idle time in torch.compile's frontend and backends, in Triton and CUDA module loading while steps run, and in
ops whose library prepares itself for a shape it has not had yet: plans, heuristics, autotuning (cuDNN
attention builds a plan for every new sequence length, forward and backward).

Why it costs:
Compiling takes from tenths of seconds to minutes, a plan tens of milliseconds; a kernel takes microseconds.
A guard that fails on every new sequence length compiles again and again, up to the recompile limit, and then
runs eagerly. Plans are kept for each shape: a length that never comes back is paid for in full.

How it is told apart:
By the compiler's own ranges (compile_inner, backend_compile, inductor, cuModuleLoad, lazy loading), and by
the shape: inside an op that launches kernels a millisecond or more in which it calls nothing, on the first
call with that shape and not on later ones. A call that launches many times the kernels of the op's other
calls, by many names, tries them out (torch.backends.cudnn.benchmark): all of it is set-up. An op that takes
the time on shapes it knows works on the host: that is host-work. The first steps always compile: that is
warm-up, and left out of the step. A compiled region that leaves its graph is graph-breaks.

What helps:
static-shapes: padding to a few fixed lengths, for compiled code also dynamic=True or mark_dynamic for the
dimension that changes, and no Python numbers that change from step to step (TORCH_LOGS=recompiles names the
guard).
"""

from __future__ import annotations

import re

from findwall.attribute.facts import Facts
from findwall.attribute.figures import MORE_THAN_ONCE, opening, times_text, told, waiting
from findwall.attribute.setups import SetUp, compiling, set_ups
from findwall.attribute.waits import wait_evidence
from findwall.model.diagnosis import EVIDENCE_ROWS, Evidence
from findwall.units import format_ms

CAUSE = "recompilation"
TEENS = range(10, 21)  # 11th, 12th and 13th, unlike 21st, 22nd and 23rd
_FRAME_ID = re.compile(r"compile_id=(\d+)/(\d+)")


def evidence(facts: Facts) -> list[Evidence]:
    found = [*wait_evidence(compiling(facts)), *(_shown(one) for one in set_ups(facts) if one.ms > 0)]
    return sorted(found, key=lambda one: -(one.ms or 0.0))[:EVIDENCE_ROWS]


def sentence(facts: Facts) -> str:
    calls, prepared = compiling(facts), set_ups(facts)
    if sum(one.ms for one in prepared) > sum(one.ms for one in calls):
        return _about_set_ups(facts, prepared)
    ids = [found for found in (_FRAME_ID.search(name) for name in facts.timeline.names) if found]
    again = max((int(found[2]) for found in ids), default=0)
    which = f" (one function for the {_ordinal(again + 1)} time)" if again else ""
    where = next((f" at {wait.line}" for wait in calls if wait.line), "")
    fact = f"{waiting(facts, CAUSE)} while code is compiled inside the step{where}{which}"
    advice = "compile with dynamic=True or keep shapes fixed (TORCH_LOGS=recompiles names the guard)"
    return told(facts, CAUSE, fact, advice)


def _about_set_ups(facts: Facts, prepared: list[SetUp]) -> str:
    first = prepared[0]
    where = f" at {first.line}" if first.line else ""
    if first.tried:
        fact = (
            f"{opening(facts, CAUSE)} goes to {first.op}{where} trying out kernels for {_new_shapes(first)}"
        )
        advice = "bucket the shapes to a few fixed ones, or switch torch.backends.cudnn.benchmark off"
    else:
        fact = f"{waiting(facts, CAUSE)} while {first.op}{where} sets itself up for {_new_shapes(first)}"
        advice = "pad or bucket the lengths to a few fixed shapes, so that each is set up only once"
    return told(facts, CAUSE, fact, advice)


def _new_shapes(one: SetUp) -> str:
    """ "5 new shapes (such as [16×8×500×64] bf16)", as far as the traced steps tell."""
    if one.shapes == 0:
        return "new shapes (record_shapes=True would show which)"
    count = "1 new shape" if one.shapes == 1 else f"{one.shapes} new shapes"
    such = "" if one.shapes == 1 else "such as "
    return f"{count} in the traced steps ({such}{one.shape})" if one.shape else f"{count} in the traced steps"


def _shown(one: SetUp) -> Evidence:
    times = f" {times_text(one.times)} per step" if one.times >= MORE_THAN_ONCE else ""
    at = f" at {one.line}" if one.line else ""
    text = f"{one.op}{at} set itself up{times} for {_new_shapes(one)}: the device waited {format_ms(one.ms)}"
    return Evidence(text, None, one.op, one.line, one.ms)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in TEENS else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
