"""Fixes that can be switched while a job runs, screened before anything is proven: many in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from findwall.model.arms import Screening
from findwall.trial.arms_in_turn import Arm, Plan, run_trial, step_in_report
from findwall.trial.judge import bare
from findwall.trial.screened import Screened, screened
from findwall.trial.stacks_tried import Stack

# Chosen by hand.
FEWEST = 2  # fixes: one alone is proven as fast
EACH_S = 8.0  # that one takes, about
COMPILED_S = 60.0  # and one that compiles besides

Say = Callable[[str], None]
MakeArm = Callable[[str, Stack, Sequence[str]], Arm]  # a name, what is made in it, what is screened in it


class Screenings:
    """Of one job, one after the other."""

    def __init__(self, arm: MakeArm, say: Say, so_far: Callable[[], str] = lambda: "") -> None:
        """`so_far`: what a line about what is done next begins with."""
        self._arm, self._tell, self._so_far = arm, say, so_far
        self._is_over = False  # the job has what no fix may be switched beside
        self.compiles_s: float | None = None  # that one took

    def of(
        self, fixes: Sequence[str], stack: Stack, left_s: float, typed: Mapping[str, str] | None = None
    ) -> list[Screened]:
        """Those of the fixes that can be, in as many processes as the job needs for it: it may be short, or
        fail with one of them. `left_s`: what they may take; `typed`: the job's own switches, by fix."""
        waiting, found = _live(fixes), list[Screened]()
        while len(waiting) >= (FEWEST if not found else 1) and not self._is_over:
            if _takes_s(waiting) > left_s:
                break
            names, about = ", ".join(waiting), f"about {_takes_s(waiting):.0f} s"
            self._tell(f"{self._so_far()}screening {names} in one process: {about}")
            told, took_s = self._told(waiting, stack, left_s)
            left_s -= took_s
            if told is None or not told.fixes:
                self._is_over = told is not None
                break
            for one in told.fixes:
                name = next(name for name in waiting if bare(name) == one.name)
                waiting.remove(name)
                found.append(replace(screened(one, name, (typed or {}).get(name, "")), base=stack))
                self._tell(f"  {_words(found[-1])}")
                if found[-1].faster is not None and compiling((name,)):
                    self.compiles_s = one.seconds
        return found

    def _told(self, fixes: Sequence[str], stack: Stack, left_s: float) -> tuple[Screening | None, float]:
        arm = self._arm("screening", stack, fixes)
        trial = run_trial([arm], Plan(rounds=1, process_s=left_s, deadline_s=left_s, read=step_in_report))
        if trial.ended == "interrupted":
            raise KeyboardInterrupt
        samples = trial.arms[arm.name].samples
        reports = [one.report for one in samples if one.report is not None]
        told = reports[0].screening if reports else None
        if told is None or not told.fixes:
            failed = next((one.failure.what for one in samples if one.failure is not None), "")
            self._tell(f"  nothing was screened: {(told and told.why_not) or failed or 'there was no time'}")
        return told, trial.seconds


def _live(fixes: Sequence[str]) -> list[str]:
    """Those that can be switched, what compiles last."""
    from findwall.fixes import all_fixes

    known = all_fixes()
    able = [name for name in dict.fromkeys(fixes) if known[bare(name)].live is not None]
    return sorted(able, key=lambda name: known[bare(name)].compiles)


def _takes_s(fixes: Sequence[str]) -> float:
    from findwall.fixes import all_fixes

    known = all_fixes()
    return sum(EACH_S + COMPILED_S * known[bare(name)].compiles for name in fixes)


def compiling(stack: Stack) -> Stack:
    """What of a stack compiles when the job starts."""
    from findwall.fixes import all_fixes

    return tuple(name for name in stack if all_fixes()[bare(name)].compiles)


def _words(one: Screened) -> str:
    if one.faster is None or one.trouble:
        return f"{one.fix}: {one.trouble}"
    low, mid, high = (f"{value:.2f}" for value in (one.faster.low, one.faster.ratio, one.faster.high))
    return f"{one.fix}: {mid}× ({low}–{high}) while the job ran"
