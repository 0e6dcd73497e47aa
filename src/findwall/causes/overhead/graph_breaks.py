"""A compiled model leaves its graph in the middle of a call and goes back to Python.

What it finds:
Idle time in host work between the pieces of one compiled call: guards, the resumed Python function, and
the ops that run eagerly in between.

Why it costs:
Each break ends a compiled graph: nothing is fused across it, and the host runs Python, checks guards
and enters the next graph while the device waits.

How it is told apart:
By nesting: after a break the rest of the function is compiled as a function of its own, so that one
"Torch-Compiled Region" lies inside another. The time in such an outer region that is in no compiled
graph is the break's. Synchronisations in it (.item() is a common reason to break) are host-sync.

What helps:
fewer-graph-breaks: fullgraph=True names the line of every break (TORCH_LOGS=graph_breaks lists them); then
remove print, .item() and unsupported calls from the model, or set capture_scalar_outputs. CUDA graphs
need an unbroken graph to help.
"""

from __future__ import annotations

import numpy as np

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Facts, Told, known, lines
from findwall.facts.user_lines import line_of
from findwall.model.events import Kind
from findwall.step.call_names import in_window
from findwall.step.host_activity import REGION
from findwall.step.step_facts import StepFacts
from findwall.units import ms


def shows(facts: Facts) -> list[Evidence]:
    """The resumed regions before which the device waited; eager ops after a break have none."""
    positions, amounts_ns = facts.idle_rows("graph-breaks")
    total: dict[str, float] = {}
    line: dict[str, str | None] = {}
    for row, amount in zip(facts.queue.row[positions].tolist(), amounts_ns.tolist(), strict=True):
        around = facts.links.ancestors(int(facts.links.launch[row])) if facts.links.launch[row] >= 0 else []
        regions = [one for one in around if REGION.search(facts.timeline.name_of(one))]
        name = facts.timeline.name_of(regions[0]) if regions else ""
        total[name] = total.get(name, 0.0) + amount
        line.setdefault(name, line_of(facts, regions[0]) if regions else None)
    best = sorted(total, key=lambda name: (-total[name], name))[:EVIDENCE_ROWS]
    return [_shown(name, line[name], ms(total[name])) for name in best]


def _shown(name: str, line: str | None, waited_ms: float) -> Evidence:
    before = Claim("evidence/after-break", {"ms": waited_ms}, known(range=name), lines(line))
    return Evidence("", None, None, line, waited_ms, before)


def says(facts: StepFacts) -> Told:
    """How many compiled regions a step lie inside another one."""
    timeline = facts.timeline
    region = timeline.named(REGION)[timeline.events.name]
    rows = in_window(facts, np.flatnonzero(region & timeline.events.is_kind(Kind.OP, Kind.ANNOTATION)))
    nested = [row for row in rows.tolist() if any(region[one] for one in facts.links.ancestors(row))]
    fact = Claim("graph-breaks/leaves", {"times": len(nested) / facts.steps.count})
    return Told(fact, Claim("advise/fewer-graph-breaks"))


CAUSE = Cause("graph-breaks", says, shows)
