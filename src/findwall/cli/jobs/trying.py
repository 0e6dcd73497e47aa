"""Run a person's script again and again, plain and with fixes made in it, and look at the wall that is left.

Every process is `findwall run` of the script, unedited; each is told its seed, and tells its step and losses.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, count
from math import inf
from pathlib import Path
from statistics import median

import msgspec

from findwall.agent.ending.after_the_job import CEILINGS_MOST_S, CEILINGS_S
from findwall.cli.jobs.launchers import Launch
from findwall.cli.jobs.looking import (
    declared,
    deleted,
    lacks_ceilings,
    look_at,
    measure_cores,
    read_back,
    warn,
    written,
)
from findwall.cli.jobs.screening import COMPILED_S, Screenings, compiling
from findwall.cli.jobs.what_to_try import rivals, stand_ins, view_of
from findwall.errors import FindwallError
from findwall.model.applied import Applied
from findwall.model.arms import SEED, SINCE
from findwall.model.diagnosis import Diagnosis
from findwall.model.series import Series
from findwall.model.switches.program_options import Option
from findwall.model.switches.typed_switches import is_by_switch, own_name, switched_on, typed_of
from findwall.trial.arms_in_turn import (
    PROCESS_S,
    ROUNDS,
    SLOWER,
    Arm,
    Plan,
    Sample,
    Trial,
    run_trial,
    step_in_report,
)
from findwall.trial.process_groups import is_piped_to
from findwall.trial.screened import Screened
from findwall.trial.search import Settled, search
from findwall.trial.stacks_tried import AGAIN, EARLY, NO_LOOK, PLAIN, Found, Stack, View, joined
from findwall.units import format_ms

OTHER_SEED = "1"
LOOK_IS = 2.0  # times as long as a process of an arm, about: it is traced as well. Chosen by hand.
FEWEST_PROCESSES = 6  # that show anything: two each of a fix, of the plain job, and of it from another seed
MORE_ROUNDS = 2  # times as many as usual, where a gain shows that is not proven yet. Chosen by hand.

NO_INPUT = (
    "the job's standard input is empty in every run, because a pipe can be read only once: "
    "give it as a file, < FILE, if the job reads it"
)

Say = Callable[[str], None]


class Job(msgspec.Struct, frozen=True):
    """The script as a person would run it, and how it is tried."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    cwd: str | None = None
    rounds: int = ROUNDS
    steps: int | None = None
    budget_s: float = inf
    numerics: bool = True  # fixes that round differently may be tried
    only: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()  # what starts its processes: torchrun and its options
    folder: Path | None = None  # where the first look at it stays

    @property
    def env(self) -> dict[str, str]:
        """A module is looked for in the folder it is started from: elsewhere it is told of that folder."""
        if self.cwd is None or not self.is_module:
            return {}
        known = os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), known)))}

    def command(self, stack: Stack, *how: str) -> tuple[str, ...]:
        shown = stand_ins(stack)
        applied = [name for name in stack if name not in shown and not is_by_switch(name)]
        switched = [own_name(name) for name in stack if is_by_switch(name)]
        made = (
            *_given("--apply", applied),
            *_given("--stand-in", shown),
            *_given("--switched", switched),
        )
        arguments = switched_on(self.arguments, stack)
        launch = Launch(self.launcher, self.target, arguments, self.is_module)
        return launch.command(("run", "--stop", *how, *made))


def _given(option: str, names: Sequence[str]) -> tuple[str, ...]:
    return (option, ",".join(names)) if names else ()


def to_try(words: str) -> tuple[str, ...]:
    """The fixes that a person named, with their numbers, if a trial can make each."""
    from findwall.cli.run import named
    from findwall.fixes import all_fixes

    able = {name: fix.trial for name, fix in all_fixes().items() if fix.trial}
    numbers = named(words, able)[1]
    return tuple(name if number is None else f"{name}={number}" for name, number in numbers.items())


class Tried(msgspec.Struct):
    """What `try` found, and the first and last look at the job."""

    found: Found
    before: Diagnosis
    after: Diagnosis | None = None
    applied: Applied = Applied()  # what the stack told of itself


def first_look(job: Job, say: Say) -> Diagnosis:
    trying = _Trying(job, say)
    trying.look(())
    return trying.looks[()]


def try_fixes(job: Job, say: Say) -> Tried:
    """Look, try, keep, look again."""
    trying = _Trying(job, say)
    found = search(trying.measure, trying.look, rivals, job.rounds, trying.spare, trying.screen)
    found.seconds = trying.spent_s
    if found.ended == NO_LOOK and trying.left_s <= 0:
        found.ended = EARLY["deadline"]
    looks = trying.looks
    if () not in looks and found.ended == EARLY["interrupted"]:
        say("interrupted before anything was measured")
        raise KeyboardInterrupt
    if () not in looks:
        raise FindwallError("The job could not be looked at.", "Run `findwall run` on it first.")
    after = looks.get(found.stack) if found.stack else None
    return Tried(found, looks[()], after, trying.told.get(found.stack, Applied()))


class _Trying:
    """Looks at a job and runs its trials, within one budget."""

    def __init__(self, job: Job, say: Say) -> None:
        self._job, self._say = job, say
        self._begun = time.monotonic()
        self._writes: list[str] = []
        self._has_warned = False
        self._took: dict[Stack, list[float]] = {}  # seconds of the processes that went through
        self._gave_up: dict[Stack, float] = {}  # seconds after which others were, with what they add to those
        self._look_s = 0.0  # what the first look took
        self._options: list[Option] = []  # that the job's program takes
        self._typed: dict[str, str] = {}  # those of them that make a fix, as they are typed; else empty
        self._screenings = Screenings(
            lambda name, stack, fixes: _arm(job, name, stack, fixes), say, self._so_far
        )
        self._proven: Stack = ()  # the best so far
        self._steps: dict[Stack, float] = {}  # in ms, as processes told them
        self.looks: dict[Stack, Diagnosis] = {}
        self.told: dict[Stack, Applied] = {}  # by each stack, of what was made

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._begun

    @property
    def left_s(self) -> float:
        return self._job.budget_s - self.spent_s

    def look(self, stack: Stack) -> View | None:
        job, say = self._job, self._say
        if stack and self.left_s <= 0:
            return None
        self._proven = stack
        say(self._so_far() + "looking at the job" + (f" with {joined(stack)}" if stack else ""))
        try:
            seen = _diagnosis(job, stack, self._writes, self.left_s if stack else inf)
        except FindwallError as error:
            if not stack:
                raise
            say(f"{error} What was proven stays.")
            return None
        finally:
            if not stack and is_piped_to():
                say(NO_INPUT)
        self.looks[stack] = seen
        if not stack:
            self._look_s = self.spent_s
            self._options = declared(job.folder)
            self.looks[stack] = self._with_ceilings(seen)
        view = view_of(self.looks[stack], job.numerics, job.only, self._options, job.arguments)
        self._typed |= {own_name(name): typed_of(name) for one in view.candidates for name in one.switched}
        return view

    def _so_far(self) -> str:
        """Where the job stands, at the head of what is done next."""
        plain, best = self._steps.get(()), self._steps.get(self._proven)
        if not self._proven or plain is None or best is None:
            return ""
        left = f", {_time(self.left_s)} left" if self.left_s < inf else ""
        return f"{format_ms(plain)} → {format_ms(best)} per step proven{left}: "

    def spare(self, arms: Sequence[Stack]) -> float:
        """Seconds that would be left of the budget after a process of each."""
        return self.left_s - sum(map(self._takes_s, arms))

    def screen(self, fixes: Sequence[str], stack: Stack) -> list[Screened]:
        """Not of a job of several ranks, which wait for each other; nor where no proof could follow."""
        left_s = self.left_s - FEWEST_PROCESSES * self._takes_s(stack)
        if (self.looks[()].source.ranks or 1) > 1:
            return []
        self._warn()
        return self._screenings.of(fixes, stack, min(left_s, PROCESS_S), self._typed)

    def _takes_s(self, stack: Stack) -> float:
        """As long as the longest that has made some of it, in this or another way: what compiles, compiles
        again. Where none of those compiled, that comes on top: what a screening saw, or a guess, longer for a
        longer job. What was given up takes longer yet."""
        alike = {made: median(took) for made, took in self._took.items() if _holds(stack, made)}
        takes_s = max(alike.values(), default=self._look_s / LOOK_IS)
        if compiling(stack) and not any(map(compiling, alike)):
            seen_s = self._screenings.compiles_s
            takes_s += min(COMPILED_S, SLOWER * takes_s) if seen_s is None else seen_s
        longer = [s for part, s in self._gave_up.items() if _holds(stack, part)]
        return max([takes_s, *longer])

    def _with_ceilings(self, seen: Diagnosis) -> Diagnosis:
        """Where nobody measured this CPU yet: that first, if there is time for a trial after it. What was
        looked at is then read again, which needs no second run."""
        folder, each = self._job.folder, self._look_s / LOOK_IS
        if folder is None or not lacks_ceilings(seen):
            return seen
        free_s = self.left_s - FEWEST_PROCESSES * each
        if free_s < CEILINGS_MOST_S:
            return seen
        self._say(f"measuring this CPU's ceilings, once: about {CEILINGS_S:.0f} s")
        if not measure_cores(free_s):
            self._say("this CPU's ceilings could not be measured: `findwall ceilings` shows why")
            return seen
        with suppress(FindwallError):  # what cannot be read again stands as it was read
            seen = read_again(folder)
        if lacks_ceilings(seen):
            self._say(
                "what was measured could not be kept or read: `findwall ceilings` shows where it is kept"
            )
        return seen

    def _warn(self) -> None:
        """Once, before the job is run again."""
        job = self._job
        if not self._has_warned:
            self._has_warned = True
            warn(self._writes, job.cwd, self._say, deleted(job.folder), read_back(job.folder))

    def measure(self, arms: dict[str, Stack], settled: Settled) -> Trial:
        job, say, left = self._job, self._say, self.left_s
        self._warn()
        if left > 0:
            names = ", ".join(name for name in arms if name not in (PLAIN, AGAIN))
            about = job.rounds * sum(map(self._takes_s, arms.values()))
            takes = f"about {_time(about)}{_of(left, about)}"
            say(f"{self._so_far()}trying {names} beside the plain job, in turn: {takes}")
        made = [_arm(job, name, stack) for name, stack in arms.items()]
        trial = run_trial(made, self._plan(arms, left, settled))
        for name, stack in arms.items():
            if (step_ms := trial.arms[name].median_ms) is not None:
                self._steps[stack] = step_ms
            if reports := trial.arms[name].reports:
                self.told[stack] = reports[0].applied
        return trial

    def _plan(self, arms: dict[str, Stack], left_s: float, settled: Settled) -> Plan:
        def tell(name: str, sample: Sample) -> None:
            self._note_time(arms[name], sample)
            told = f"{sample.step_ms:.3g} ms per step" if sample.failure is None else sample.failure.trouble
            self._say(f"  {name}: {told} ({sample.seconds:.0f} s)")

        return Plan(
            rounds=MORE_ROUNDS * self._job.rounds,
            deadline_s=left_s,
            read=step_in_report,
            tell=tell,
            settled=settled,
            takes_s=lambda name: self._takes_s(arms[name]),
        )

    def _note_time(self, stack: Stack, sample: Sample) -> None:
        """Of one that was given up, what went through without the rest is not to blame."""
        if sample.failure is None:
            self._took.setdefault(stack, []).append(sample.seconds)
        elif sample.failure.trouble == "timed-out":
            through = set(chain.from_iterable(self._took))
            part = tuple(name for name in stack if name not in through) or stack
            self._gave_up[part] = max(sample.seconds, self._gave_up.get(part, 0.0))


def _holds(stack: Stack, part: Stack) -> bool:
    """Whether all of a part is made in a stack, in this or another way."""
    return all(name in stack or rivals(stack, name) for name in part)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _of(left_s: float, about_s: float) -> str:
    if left_s == inf:
        return ""
    return f"{', more than' if about_s > left_s else ' of'} the {_time(left_s)} that are left"


def run_folder(target: str, what: str = "try") -> Path:
    """A new one, where `findwall run` has its own."""
    from findwall.agent.ending.runfolder import RUNS, safe_name

    parent = Path.cwd() / RUNS
    name = f"{safe_name(target)}-{what}"
    return next(path for number in count(1) if not (path := parent / f"{name}-{number}").exists())


def keep(folder: Path, diagnosis: Diagnosis) -> None:
    """The trials beside what was looked at, and the document and the page with them."""
    from findwall.cli.report import examined
    from findwall.model.measurement import TRIALS_FILE
    from findwall.report import document

    if folder.is_dir():
        document.save(folder / TRIALS_FILE, msgspec.json.encode(diagnosis.trials))
        _write(folder, diagnosis, examined([str(folder)], None, None)[1])


def read_again(folder: Path) -> Diagnosis:
    """What was looked at, with what is known by now; the document and the page there say the same."""
    from findwall.cli.report import examined

    found, series = examined([str(folder)], None, None)
    _write(folder, found.diagnosis, series)
    return found.diagnosis


def _write(folder: Path, diagnosis: Diagnosis, series: Series) -> None:
    from findwall.cli.report import write_page
    from findwall.model.measurement import DIAGNOSIS_FILE, REPORT_FILE
    from findwall.report import document

    document.write(diagnosis, str(folder / DIAGNOSIS_FILE))
    write_page(diagnosis, series, folder / REPORT_FILE)


def _arm(job: Job, name: str, stack: Stack, screened: Sequence[str] = ()) -> Arm:
    steps = ("--steps", str(job.steps)) if job.steps is not None else ()
    env = {**job.env, SINCE: str(time.time()), **({SEED: OTHER_SEED} if name == AGAIN else {})}
    how = ("--no-trace", *steps, *_given("--screen", screened))
    return Arm(name, job.command(stack, *how), env, job.cwd)


def _diagnosis(job: Job, stack: Stack, writes: list[str], left_s: float = inf) -> Diagnosis:
    """One traced run of the job with a stack made in it, in the time that is left; `writes` becomes what it
    was seen to write."""
    with tempfile.TemporaryDirectory(prefix="findwall-try-") as name:
        folder = Path(name)
        document, run = folder / "diagnosis.json", folder / "run"
        if not stack and job.folder is not None:
            run = job.folder
        where = ("--out", str(run), "--json", str(document))
        command = job.command(stack, "--brief", "--until", "lines", *where)
        found = look_at(command, folder, document, job.cwd, job.env, left_s)
        writes[:] = written(run)
        return found
