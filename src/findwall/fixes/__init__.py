"""What a fix is, and all of them: one file each, in the folder of its kind, found here by its `FIX`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Literal

import msgspec

from findwall.apply.applying import Apply
from findwall.facts.best_changes import at_most, free_launches, gone, ideal, to_floor
from findwall.facts.facts import Facts, matching, of_class, rows_of, small_kernels, time_of
from findwall.facts.gains import NO_MODEL, gain_ms, missing, step_ms
from findwall.facts.step_traits import device_word, is_compiled, is_training, on_cores, pieces, range_names
from findwall.model.claims import Claim, Figure, Figures, lines, plain
from findwall.model.intervals import I64
from findwall.model.probes import Rewrite
from findwall.patches.editor import Editor
from findwall.replay.change import Change
from findwall.work.work_facts import WorkFacts

# What the file of a fix is written with.
__all__ = [
    "CannotTell",
    "Claim",
    "Facts",
    "Figure",
    "Figures",
    "Fix",
    "Likely",
    "Made",
    "NoUse",
    "Outcome",
    "Use",
    "as_on_cores",
    "at_most",
    "cannot_tell",
    "device_word",
    "free_launches",
    "gain_ms",
    "gone",
    "ideal",
    "is_compiled",
    "is_training",
    "lacks_rates",
    "lines",
    "matching",
    "no_ceilings",
    "no_use",
    "not_here",
    "of_class",
    "on_cores",
    "pieces",
    "range_names",
    "rows_of",
    "small_kernels",
    "spent_ms",
    "step_ms",
    "surely",
    "takes_nothing",
    "time_of",
    "to_floor",
    "unclear_if",
    "unless",
    "without_floors",
]

Safety = Literal["safe", "changes-numerics", "needs-review"]
Made = frozenset[str]  # the fixes that are made together
Likely = Callable[[Made], Change]  # what a fix does then: of two that change the same kernel, one does it


class Use(msgspec.Struct, frozen=True):
    """It applies, in this way."""

    claim: Claim  # what to change, and what that answers
    best: Change | None = None  # all that it could do, done; None: what its causes could give back
    moves: tuple[str, ...] | None = None  # the causes it moves in this job, where not all of its own
    shorter_step: bool = True  # False: it does more in a step, and the step gets no shorter
    after_others: bool = False  # it needs what another fix of its cause does first, or gives no more
    before_others: bool = False  # as long as it is not made, the figures of others say little
    likely: Likely | None = None  # what it will do; None: nobody can tell, the bound alone is shown
    uncurved: bool = False  # the replay of this trace tells the step, and no curve measured elsewhere
    may: tuple[Likely, ...] = ()  # what it does in the best and the worst case, where they are far apart
    parameters: dict[str, Figure] = {}  # numbers of the action: {"workers": 10}
    condition: str = ""  # id of what must hold for it to be right, where the trace does not show that
    rewrites: tuple[Rewrite, ...] = ()  # what to probe in both forms: `plain` and `cheaper` of its file
    probed: I64 | None = None  # device rows of which probes of both forms told what `likely` makes of them

    @property
    def places(self) -> list[str]:
        """Lines of the job's own code that it concerns."""
        return list(dict.fromkeys(_places(self.claim)))


def _places(claim: Claim) -> list[str]:
    return [*claim.places, *(place for part in claim.parts for place in _places(part))]


class NoUse(msgspec.Struct, frozen=True):
    """There is nothing here for it to move."""

    claim: Claim
    obvious: bool = False  # the device is not of the kind it is made for: no person needs to be told


class CannotTell(msgspec.Struct, frozen=True):
    """The trace does not hold what would decide it: it is neither prescribed nor refused."""

    claim: Claim


Outcome = Use | NoUse | CannotTell


def no_use(what: str, **figures: Figure) -> NoUse:
    return NoUse(Claim(what, figures))


def cannot_tell(what: str, **figures: Figure) -> CannotTell:
    return CannotTell(Claim(what, figures))


def not_here(facts: WorkFacts, what: str, **figures: Figure) -> NoUse | CannotTell:
    """For a reason that compares kernels with ceilings: where those are missing nobody can tell."""
    if missing(facts) is not None:
        return no_ceilings(facts)
    return no_use(what, **figures)


def no_ceilings(facts: WorkFacts) -> CannotTell:
    return CannotTell(Claim("ceilings/unknown", parts=[without_floors(facts)]))


def as_on_cores(facts: Facts) -> Figures:
    """For words that differ for a CPU job; nothing is said of others."""
    return {"on_cores": True} if on_cores(facts) else {}


def lacks_rates(facts: WorkFacts) -> bool:
    """Whether nobody knows how fast the device moves bytes. Of cores nobody need: what another form takes
    there at best is nothing."""
    return not facts.ceilings.bandwidth and not on_cores(facts)


def without_floors(facts: WorkFacts) -> Claim:
    """What keeps floors from being known."""
    return plain(missing(facts) or NO_MODEL)


def surely(claim: Claim, change: Change, moves: tuple[str, ...] | None = None) -> Use:
    """A fix that does all it could: nothing is lost between the bound and what it gives."""
    return Use(claim, change, moves, likely=lambda made: change, uncurved=True)


Refusal = Callable[[Facts], NoUse | CannotTell | None]  # why a fix is not made in a job, if it is not


def unless(what: str, holds: Callable[[Facts], bool], obvious: bool = False) -> Refusal:
    """There is nothing for a fix to move where this holds."""
    return lambda facts: NoUse(Claim(what), obvious) if holds(facts) else None


def unclear_if(what: str, holds: Callable[[Facts], bool]) -> Refusal:
    """The trace does not decide about a fix where this holds."""
    return lambda facts: CannotTell(Claim(what)) if holds(facts) else None


def spent_ms(facts: Facts, *causes: str) -> float:
    return sum(facts.spent_ms(cause) for cause in causes)


def takes_nothing(*causes: str) -> Callable[[Facts], bool]:
    return lambda facts: spent_ms(facts, *causes) <= 0


class Fix(msgspec.Struct, frozen=True):
    """One fix, declared at the end of its file."""

    moves: tuple[str, ...]  # causes, those it is made for first
    safety: Safety  # what it may do to the results
    use: Callable[[Facts], Outcome]  # the words: how to make it in this job, or why not
    refusals: tuple[Refusal, ...] = ()  # asked before that, in their order
    tried: int | None = None  # its place among what people try first; None: they do not
    apply: Apply | None = None  # makes it in the job's own process; None: it needs an edit
    # Sees in the job's process that a switch of the job's own did the same, and changes nothing.
    shows: Apply | None = None
    patch: Callable[[Editor], None] | None = None  # edits the job's own lines, to make it permanent
    numbered: Callable[[Facts, int], Outcome] | None = None  # the same with a number that a person gives
    stand_in: Apply | None = None  # shows in a trial what the edit would give; nothing to run a job with
    # Makes it in a job that runs already, so that `try` can screen it: what it puts is taken back by the
    # registry, and it is made again. Most that can be made so are made as at the start.
    live: Apply | None = None
    compiles: bool = False  # its first step takes long: it is screened last
    instead: str = ""  # the fix that `try` makes in its place where this one fails
    redraws: bool = False  # what a dataset draws at random is drawn in other processes
    removes: bool = False  # it takes work out of the step whole: no floor of that work bounds what it saves
    reorders: bool = False  # it is safe, but other kernels or ranks add up in another order
    plainer: tuple[
        str, ...
    ] = ()  # other ways to the same end that ask for less: a switch, another op, no graph
    of_anything: bool = False  # it can be said of whatever is slow: what was found in the job goes before it

    def advise(self, facts: Facts) -> Outcome:
        """How to make it in this job, or why not."""
        for refusal in self.refusals:
            if (refused := refusal(facts)) is not None:
                return refused
        return self.use(facts)

    @property
    def trial(self) -> Apply | None:
        """How `try` makes it."""
        return self.apply or self.stand_in

    @property
    def exact(self) -> bool:
        """It promises the very same numbers."""
        return self.safety == "safe" and not self.reorders


MEMORY = "_memory"  # how the files are called that say what fixes do to the peak of memory


def memory_edits() -> list[Any]:
    """What each file beside the fixes declares of memory, of type `memory_ladder.Edit`."""
    return [edit for module in _of_memory() for edit in getattr(module, "RUNGS", ())]


def memory_patches() -> dict[str, str]:
    """The line or setting that makes each change of memory, by the id of its rung."""
    return {fix: line for module in _of_memory() for fix, line in getattr(module, "PATCHES", {}).items()}


def writes_patch(fix: str) -> bool:
    """Whether `findwall try` writes it as a diff of the job's own lines."""
    place = _files().get(fix.replace("-", "_"))
    found = None if place is None else getattr(importlib.import_module(place), "FIX", None)
    return found is not None and found.patch is not None


def _of_memory() -> list[ModuleType]:
    return [importlib.import_module(place) for name, place in _files().items() if name.endswith(MEMORY)]


@cache
def fix_modules() -> dict[str, ModuleType]:
    """The file of each fix, by its id, in alphabetical order."""
    return {name.replace("_", "-"): module for name, module in _modules().items() if hasattr(module, "FIX")}


@cache
def _modules() -> dict[str, ModuleType]:
    return {name: importlib.import_module(place) for name, place in _files().items()}


@cache
def _files() -> dict[str, str]:
    """Every file in the folder of a kind, by its name, in alphabetical order."""
    kinds = [
        importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
        if info.ispkg
    ]
    names = {
        info.name: f"{kind.__name__}.{info.name}"
        for kind in kinds
        for info in pkgutil.iter_modules(kind.__path__)
    }
    return {name: names[name] for name in sorted(names)}


def all_fixes() -> dict[str, Fix]:
    return {name: module.FIX for name, module in fix_modules().items()}


def takes_out(fixes: list[str]) -> bool:
    """Whether one of these takes work out of the step whole."""
    return any(all_fixes()[name].removes for name in fixes if name in all_fixes())


def page(fix: str) -> str:
    """The page of a fix: its file's docstring. KeyError where there is no such fix."""
    return inspect.getdoc(fix_modules()[fix]) or ""
