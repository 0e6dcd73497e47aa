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
guard). Where lengths grow because a cache is joined to at every step: buffer-once, read under a mask.
"""

from __future__ import annotations

import re

from findwall.causes import Cause, Claim, Evidence, Facts, Figures, Told, known, lines, wait_evidence
from findwall.facts.waits import SetUp, compiling, set_ups

_FRAME_ID = re.compile(r"compile_id=(\d+)/(\d+)")


def shows(facts: Facts) -> list[Evidence]:
    found = [*wait_evidence(compiling(facts)), *(_shown(one) for one in set_ups(facts) if one.ms > 0)]
    return sorted(found, key=lambda one: -(one.ms or 0.0))


def says(facts: Facts) -> Told:
    calls, prepared = compiling(facts), set_ups(facts)
    if sum(one.ms for one in prepared) > sum(one.ms for one in calls):
        way = ("tries", "tried") if prepared[0].tried else ("sets-up", "set-up")
        fact = _set_up(f"recompilation/{way[0]}", prepared[0], {})
        return Told(fact, Claim(f"advise/static-shapes/{way[1]}"))
    ids = [found for found in (_FRAME_ID.search(name) for name in facts.timeline.names) if found]
    again = max((int(found[2]) for found in ids), default=0)
    places = lines(next((wait.line for wait in calls if wait.line), None))
    fact = Claim("recompilation/compiles", {"compiled": again + 1 if again else None}, places=places)
    return Told(fact, Claim("advise/static-shapes/dynamic"))


def _set_up(what: str, one: SetUp, figures: Figures) -> Claim:
    return Claim(what, {**figures, "new": one.shapes}, known(op=one.op, shapes=one.shape), lines(one.line))


def _shown(one: SetUp) -> Evidence:
    claim = _set_up("evidence/set-up", one, {"often": one.times, "ms": one.ms})
    return Evidence("", None, one.op, one.line, one.ms, claim)


CAUSE = Cause("recompilation", says, shows, kernels=False)
