"""What of a diagnosis a trial can make without an edit, and in which way: by a switch of the job, or ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from findwall.model.diagnosis import Diagnosis, Prescription
from findwall.model.switches.program_options import Option
from findwall.model.switches.typed_switches import Switch, by_switch, is_by_switch
from findwall.trial.judge import bare
from findwall.trial.stacks_tried import Candidate, Stack, View

ROOM_FROM = 0.5  # of the memory: a peak of more leaves no room for activations. Chosen by hand.


def stand_ins(stack: Stack) -> Stack:
    """Those of a stack whose gain a trial shows by a stand-in, because they need an edit."""
    from findwall.fixes import all_fixes

    return tuple(name for name in stack if not is_by_switch(name) and all_fixes()[bare(name)].apply is None)


def view_of(
    diagnosis: Diagnosis,
    numerics: bool = True,
    only: Sequence[str] = (),
    options: Sequence[Option] = (),
    typed: Sequence[str] = (),
) -> View:
    """The wall, and the prescribed fixes that a trial can make without an edit, in their order.

    `only`: those that a person named, whatever is prescribed; `options`, `typed`: what the job's program
    takes, and what it is given.
    """
    from findwall.fixes import all_fixes

    switches = _switches(diagnosis, options, typed, only)
    known, asked = all_fixes(), {bare(name): name for name in only}
    numbered = {one.fixes[0]: _numbered(one) for one in diagnosis.prescriptions if len(one.fixes) == 1}
    numbered |= {name: one for name, one in asked.items() if "=" in one}
    offered = [*diagnosis.prescriptions, *_instead(diagnosis)]
    found = [
        Candidate(
            tuple(numbered.get(name, name) for name in one.fixes),
            all(known[name].exact for name in one.fixes),
            one.step_ms,
            bool(stand_ins(tuple(one.fixes))),
            any(known[name].redraws for name in one.fixes),
        )
        for one in offered
        if all(
            (known[name].trial is not None or name in switches) and (not asked or name in asked)
            for name in one.fixes
        )
    ]
    there = {bare(one.fixes[0]) for one in found if len(one.fixes) == 1}
    found += [
        Candidate((one,), known[name].exact, stands_in=bool(stand_ins((one,))), redraws=known[name].redraws)
        for name, one in asked.items()
        if name not in there
    ]
    found = [_with_switches(one, switches) for one in found]
    wall = diagnosis.wall
    named = f"{wall.wall} / {wall.cause}" if wall.cause else "no wall that is known"
    return View(named, diagnosis.step.ms, [one for one in found if numerics or one.exact])


def _switches(
    diagnosis: Diagnosis, options: Sequence[Option], typed: Sequence[str], only: Sequence[str]
) -> dict[str, Switch]:
    """Of the job's own, by what each makes. A number that a person named counts, then the one prescribed."""
    from findwall.fixes.loader.loader_workers import sensible_workers
    from findwall.fixes.own_switches import own_switches

    if not options:
        return {}
    numbers = [one.parameters.get("workers") for one in diagnosis.prescriptions]
    named = [int(one.partition("=")[2]) for one in only if bare(one) == "loader-workers" and "=" in one]
    known = [*named, *(int(one) for one in numbers if isinstance(one, int | float) and one)]
    found = own_switches(options, typed, next(iter(known), sensible_workers()))
    if not _has_room(diagnosis):
        found.pop("less-recompute", None)
    return found


def _has_room(diagnosis: Diagnosis) -> bool:
    """Whether the device has room for what a job no longer computes again."""
    peak, total = diagnosis.memory.peak_gib, diagnosis.memory.total_gib
    return peak is not None and total is not None and peak < ROOM_FROM * total


def _with_switches(one: Candidate, switches: dict[str, Switch]) -> Candidate:
    from findwall.fixes import all_fixes

    known = all_fixes()
    made = [(name, switches.get(bare(name))) for name in one.fixes]
    if not any(switch for _, switch in made):
        return one
    switched = tuple(by_switch(name, switch) if switch else name for name, switch in made)
    only = any(known[bare(name)].trial is None for name in one.fixes)
    return replace(one, switched=switched, only_switched=only, stands_in=bool(stand_ins(switched)))


def _instead(diagnosis: Diagnosis) -> Iterator[Prescription]:
    """What is made in the place of a fix that fails: other ways to the same, at no better step."""
    from findwall.fixes import all_fixes

    for one in diagnosis.prescriptions:
        name = all_fixes()[one.fixes[0]].instead if len(one.fixes) == 1 else ""
        if name:
            yield replace(one, fixes=[name])


def _numbered(one: Prescription) -> str:
    """A fix with as many workers as its prescription names."""
    workers = one.parameters.get("workers")
    return f"{one.fixes[0]}={workers}" if workers else one.fixes[0]


def rivals(stack: Stack, name: str) -> Stack:
    from findwall.fixes.same_end import are_apart

    one = bare(name)
    return tuple(other for other in stack if bare(other) == one or are_apart(one, bare(other)))
