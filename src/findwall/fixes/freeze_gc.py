"""Keep Python's garbage collector out of the step.

What it does:
A collection walks every Python object; with millions of them (samples, configurations, caches) it
takes tens to hundreds of milliseconds, at moments nobody chose. `gc.freeze()` after set-up takes
what exists out of the walk; `gc.disable()` and a `gc.collect()` every n steps put the pause where
it is planned, and on all ranks at once.

When it does not help:
No pause falls into the step. Traces do not show the collector unless Python stacks are recorded;
`findwall run` times it, and so do `gc.callbacks`.

Risk:
Objects in reference cycles live until the next planned collection: memory grows in between.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from findwall.attribute.facts import Facts
from findwall.attribute.figures import a_step, gain_ms, step_ms
from findwall.attribute.host_copies import BULK_BYTES, downloads
from findwall.attribute.whatif import ideal
from findwall.fixes import Fix, NoUse, Outcome, surely, use
from findwall.measure.applying import Effect
from findwall.measure.roots import roots
from findwall.model.catalogue import WORTH_IT
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.loops import counted_by, loops_around

MOVES = ("gc-pause", "host-work", "unstable-steps")
COLLECTED_SHARE = 0.005  # of the step: shorter pauses are not worth a change. Chosen by hand, not calibrated.
# In a job that is not edited; all chosen by hand. By the third step optimizer and loader have their objects;
# then it collects every so many steps, and of the job's own collections, or Python's, one in so many is made.
WARM_STEPS, COLLECTED_STEPS, COLLECTED_TIMES = 3, 500, 50
WAY = "call `gc.freeze()` after set-up, then `gc.disable()` and `gc.collect()` every n steps"


def advise(facts: Facts) -> Outcome:
    spent = facts.spent_ms("gc-pause")
    if spent > COLLECTED_SHARE * step_ms(facts):
        line = facts.rank.collected_at
        way = f"take `gc.collect()` at {line} out of the loop, or call it every n steps" if line else WAY
        return surely(
            f"{way[0].upper()}{way[1:]}: the device waits {a_step(spent)} for collections.",
            ideal(facts, "gc-pause"),
            ("gc-pause",),
        )
    timed = facts.rank.step_times is not None and facts.rank.step_times.gc_s is not None
    unexplained = gain_ms(facts, "host-work")
    if timed or facts.timeline.header.stacks or unexplained <= WORTH_IT * step_ms(facts):
        return NoUse(f"the collector takes {a_step(spent)}" if timed else "no collector pause was seen")
    if downloads(facts).nbytes > BULK_BYTES:
        return NoUse("the long host work comes with a large copy off the device, so it saves something")
    return use(
        "If the garbage collector is to blame (`findwall run` shows it, a trace without stacks does not), "
        f"{WAY}.",
        None,
        ("host-work",),
    )


def apply(torch: Any, effect: Effect) -> None:
    """Once the job has warmed up: after a few steps, or calls of its model where it has no optimizer."""
    collector = _Collector(effect)
    steps = 0

    def stepped(*_: Any) -> None:
        nonlocal steps
        steps += 1
        effect.at("step")
        if steps == WARM_STEPS or steps % COLLECTED_STEPS == 0:
            collector.after_step()

    def called() -> None:
        if not steps:
            collector.after_calls()

    module = sys.modules["torch.optim.optimizer"]  # no attribute of torch.optim
    module.register_optimizer_step_post_hook(effect.safely(stepped))
    roots(torch).at_last(effect.safely(called))
    effect.missed(f"the job ended before its step {WARM_STEPS}")
    effect.at_end(collector.told)


class _Collector:
    """Python's, for the rest of the job."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect
        self._collect, self._frozen, self._asked, self._skipped = gc.collect, 0, 0, 0
        self._off = False

    def after_step(self) -> None:
        """Frozen and off; what has become garbage since is collected every so many steps."""
        if self._off:
            self._collect()
            return
        self._freeze()
        gc.disable()
        self._off = True

    def after_calls(self) -> None:
        """Nobody counts the steps of a job without optimizer: it collects by itself, but more seldom."""
        if not self._frozen:
            self._freeze()
            gc.set_threshold(gc.get_threshold()[0] * COLLECTED_TIMES, *gc.get_threshold()[1:])

    def told(self) -> str:
        if not self._frozen or (self._off and gc.isenabled()):  # the job may have switched it on again
            return ""
        return f"froze {self._frozen} objects; skipped {self._skipped} of the job's own collections"

    def _freeze(self) -> None:
        if not self._frozen:
            self._collect()
            gc.freeze()
            self._frozen = gc.get_freeze_count()
            gc.collect = self._seldom

    def _seldom(self, *args: Any, **kwargs: Any) -> int:
        self._asked += 1
        self._effect.at("collect")
        if self._asked % COLLECTED_TIMES:
            self._skipped += 1
            return 0
        return self._collect(*args, **kwargs)


def patch(editor: Editor) -> None:
    """Where the loop counts its steps; the job's own collections give way to the planned ones."""
    for place in editor.places("step")[:1]:
        if place.library:
            raise NoPatch(f"{place.library} runs the loop, not the job's own code")
        edits = editor.file(place.spots[0].file)
        step = edits.source.statement(editor.call(place.spots[0]))
        inner, outer = loops_around(edits.source, step)
        counter = counted_by(inner)
        collector = edits.module("gc")
        edits.insert_before(outer, *(f"{collector}.{name}()" for name in ("collect", "freeze", "disable")))
        last = COLLECTED_STEPS - 1
        unit = edits.source.indent_unit
        edits.insert_after(
            step, f"if {counter} % {COLLECTED_STEPS} == {last}:", f"{unit}{collector}.collect()"
        )
    for place in editor.some("collect"):
        editor.remove_call(place)


FIX = Fix(MOVES, "safe", advise, apply=apply, patch=patch)
