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

import ast
import functools
import gc
import sys
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY, STEP_POST_HOOK
from findwall.apply.roots import roots
from findwall.facts.memory_copies import BULK_BYTES, downloads
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gain_ms, ideal, lines, no_use, step_ms, surely
from findwall.model.applied import Place
from findwall.model.catalogue import MENTION_SHARE, WORTH_IT
from findwall.patches import NoPatch
from findwall.patches.editor import Editor
from findwall.patches.edits import FileEdits
from findwall.patches.job_source import is_repeated, loops_around, unused

# In a job that is not edited; all chosen by hand. By the third step optimizer and loader have their objects;
# then it collects every so many steps, and of the job's own collections, or Python's, one in so many is made.
WARM_STEPS, COLLECTED_STEPS, COLLECTED_TIMES = 3, 500, 50
# What has no steps, as a long evaluation, makes garbage too: after so many new objects Python collects by
# itself, where its own number is a few hundred. Steps rarely make that many between two planned collections.
MOST_OBJECTS = 1_000_000  # chosen by hand


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("gc-pause")
    if spent > MENTION_SHARE * step_ms(facts):
        places = lines(facts.rank.collected_at)
        claim = Claim(f"freeze-gc/{'asked' if places else 'plan'}", {"waits_ms": spent}, places=places)
        return surely(claim, ideal(facts, "gc-pause"), ("gc-pause",))
    timed = facts.rank.step_times is not None and facts.rank.step_times.gc_s is not None
    explained = gain_ms(facts, "host-work") <= WORTH_IT * step_ms(facts)
    if timed or facts.timeline.header.stacks or explained:
        return no_use("freeze-gc/little", spent_ms=spent) if timed else no_use("freeze-gc/none-seen")
    if downloads(facts).nbytes > BULK_BYTES:
        return no_use("freeze-gc/saves-instead")
    return Use(Claim("freeze-gc/may-be"), moves=("host-work",), condition="collector-to-blame")


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
    hook = module.register_optimizer_step_post_hook(effect.safely(stepped))
    REGISTRY.hold("freeze-gc", STEP_POST_HOOK, hook.remove, past_end=APPLIED)
    roots(torch).at_last(effect.safely(called))
    effect.missed(f"the job ended before its step {WARM_STEPS}")
    effect.at_end(collector.told)


class _Collector:
    """Python's, for the rest of the job."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect
        self._collect, self._frozen, self._asked, self._skipped = gc.collect, 0, 0, 0
        self._objects = 0  # after which Python collects by itself

    def after_step(self) -> None:
        """Frozen and as good as off; what has become garbage since is collected every so many steps."""
        if self._frozen:
            self._collect()
        else:
            self._freeze(MOST_OBJECTS)

    def after_calls(self) -> None:
        """Nobody counts the steps of a job without optimizer: it collects by itself, but more seldom."""
        if not self._frozen:
            self._freeze(gc.get_threshold()[0] * COLLECTED_TIMES)

    def told(self) -> str:
        if not self._frozen or gc.get_threshold()[0] != self._objects:  # the job may have set it since
            return ""
        return f"froze {self._frozen} objects; skipped {self._skipped} of the job's own collections"

    def _freeze(self, objects: int) -> None:
        self._collect()
        before = gc.get_threshold()
        gc.freeze()
        gc.set_threshold(objects, *before[1:])
        self._frozen, self._objects = gc.get_freeze_count(), objects
        thaw = functools.partial(_thaw, *before)
        REGISTRY.hold("freeze-gc", "gc.freeze", thaw, past_end=APPLIED)
        REGISTRY.wrap("freeze-gc", gc, "collect", lambda _: self._seldom, past_end=APPLIED)

    def _seldom(self, *args: Any, **kwargs: Any) -> int:
        self._asked += 1
        self._effect.at("collect")
        if self._asked % COLLECTED_TIMES:
            self._skipped += 1
            return 0
        return self._collect(*args, **kwargs)


def _thaw(*objects: int) -> None:
    gc.unfreeze()
    gc.set_threshold(*objects)


def patch(editor: Editor) -> None:
    """The collector is off around the loops with the steps, which a counter of their own goes through: the
    job's may begin anew in every epoch. Its own collections there give way to the planned ones."""
    loops: set[ast.stmt] = set()
    for place in editor.places("step"):
        _refuse(editor, place)
        file = place.spots[0].file
        edits = editor.file(file)
        step = edits.source.statement(editor.call(place.spots[0]))
        inner, outer = loops_around(edits.source, step)
        if inner in loops:
            continue
        loops.add(inner)
        own = [one for one in editor.some("collect") if _is_inside(one, file, outer)]
        often = any(_is_inside(one, file, inner) for one in own)
        _plan(edits, step, outer, COLLECTED_TIMES if often else COLLECTED_STEPS)
        for one in own:
            editor.remove_call(one)


def _refuse(editor: Editor, place: Place) -> None:
    if place.library:
        raise NoPatch(f"{place.library} runs the loop, not the job's own code")
    if any(is_repeated(editor.file(spot.file).source, editor.call(spot)) for spot in place.spots[1:]):
        raise NoPatch(
            "Call `gc.collect()`, `gc.freeze()` and `gc.disable()` before the first step, and "
            f"`gc.collect()` every {COLLECTED_STEPS} steps: `{place.spots[0].function}` has the step and is "
            "called in a loop, so a counter in it would start over each time."
        )


def _is_inside(place: Place, file: str, loop: ast.stmt) -> bool:
    lines = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
    return any(spot.file == file and spot.line in lines for spot in place.spots)


def _plan(edits: FileEdits, step: ast.stmt, outer: ast.stmt, steps: int) -> None:
    collector, unit = edits.module("gc"), edits.source.indent_unit
    counter = unused(edits.source, "steps", "steps_done", "optimizer_steps", "steps_since_start")
    before = (*(f"{collector}.{name}()" for name in ("collect", "freeze", "disable")), f"{counter} = 0")
    edits.insert_before(outer, *before)
    edits.insert_after(
        step, f"{counter} += 1", f"if {counter} % {steps} == 0:", f"{unit}{collector}.collect()"
    )
    edits.insert_after(outer, f"{collector}.enable()")


FIX = Fix(("gc-pause", "host-work", "unstable-steps"), "safe", use, apply=apply, live=apply, patch=patch)
