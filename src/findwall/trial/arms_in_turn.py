"""Arms of a trial, each a command line, run in turn in fresh processes.

A process is one sample: it starts, warms up, times its own steps, and tells its mean step, by a line
`mean step ms 12.3` on stdout or in the JSON file that `FINDWALL_REPORT` names. Arms take turns, so that a
drift of the machine hits all of them alike. One that crashes, hangs or runs out of memory costs one sample;
the others go on. Whatever ends a trial (the last round, the deadline, Ctrl-C), what was measured is kept, and
no process stays: all that one started ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from findwall.model.arms import REPORT, ArmReport, Around
from findwall.trial.process_groups import LOOK_S, Process, Stop, end, overseen, own_folder, same_input
from findwall.trial.statistics import LEAST_SAMPLES

Trouble = Literal["crashed", "timed-out", "out-of-memory", "no-step"]
Ended = Literal["done", "enough", "deadline", "interrupted"]

ROUNDS = 3  # the fewest samples a side that give an interval worth reading
# All chosen by hand.
PROCESS_S = 600.0  # start, warm-up with compiling, and the timed steps
START_S = 120.0  # that a process may take longer than one of another arm: it may compile
SLOWER = 3.0  # times as long as one of another arm it may take besides
LONGER = 1.1  # times as long as others: a process that starts slowly
HOPELESS = 2  # failures of an arm that never gave a sample: it is not started again
OTHERS_BUSY = 1.0  # cores that other processes keep busy: a step beside them is none to judge by
TAIL_BYTES = 1 << 20  # of what a process says: the step is told near its end
TOLD = re.compile(r"^mean step ms ([0-9.]+(?:e[-+]?[0-9]+)?)[ \t]*$", re.MULTILINE)
OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|out of memory|MemoryError|_STATUS_ALLOC_FAILED|CPUAllocator: (?:can't|not)"
)

# The last line of a traceback, which torchrun may put the rank before.
ERROR = re.compile(r"(?:\[rank\d+\]: ?)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b.*)")
LAUNCHERS = "ChildFailedError"
REPORT_NAME = "report.json"
BUDGET = "--budget gives it more time"


class Arm(msgspec.Struct, frozen=True):
    """One side of a trial: a command line, and what it changes in the environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    cwd: str | None = None  # each process runs in a new folder in it


class Failure(msgspec.Struct, frozen=True):
    """A process that gave no sample, and why."""

    trouble: Trouble
    what: str


class Sample(msgspec.Struct, frozen=True):
    """One process: the mean step it told, or how it failed."""

    turn: int  # of all processes of the trial, in the order they ran
    seconds: float  # from start to end
    step_ms: float | None = None
    failure: Failure | None = None
    report: ArmReport | None = None  # what else it told, in its file

    @property
    def load(self) -> tuple[float, int]:
        """Cores that others kept busy beside it, and their processes on the device."""
        around = self.report.around if self.report is not None else Around()
        return around.others_busy or 0.0, around.neighbours or 0


class Outcome(msgspec.Struct):
    """All processes of one arm."""

    name: str
    samples: list[Sample] = []
    is_late: bool = False  # it was never started: what was left of the budget could not prove it

    @property
    def counted(self) -> list[Sample]:
        """Those that told a step; where enough were left alone, these. On a machine that is always loaded no
        process is disturbed more than others."""
        told = [one for one in self.samples if one.step_ms is not None]
        calm = [one for one in told if not self._is_disturbed(one)]
        return calm if len(calm) >= LEAST_SAMPLES else told

    @property
    def wants_repeat(self) -> bool:
        """A disturbed process counts, for want of others."""
        return any(map(self._is_disturbed, self.counted))

    def _is_disturbed(self, one: Sample) -> bool:
        cores = min(other.load[0] for other in self.samples)
        processes = min(other.load[1] for other in self.samples)
        return one.load[0] > cores + OTHERS_BUSY or one.load[1] > processes

    @property
    def runs_ms(self) -> list[float]:
        return [one.step_ms for one in self.counted if one.step_ms is not None]

    @property
    def failures(self) -> list[Failure]:
        return [one.failure for one in self.samples if one.failure is not None]

    @property
    def reports(self) -> list[ArmReport]:
        return [one.report for one in self.samples if one.report is not None and one.failure is None]

    @property
    def median_ms(self) -> float | None:
        return median(self.runs_ms) if self.runs_ms else None

    @property
    def hopeless(self) -> bool:
        """Not worth another process: it failed too often, or hangs, which costs too much to see twice."""
        hangs = any(one.trouble == "timed-out" for one in self.failures)
        return not self.runs_ms and (self.is_late or hangs or len(self.failures) >= HOPELESS)


class Trial(msgspec.Struct):
    """What was measured, arm by arm, and why it ended."""

    arms: dict[str, Outcome]
    ended: Ended = "done"
    seconds: float = 0.0


class Said(msgspec.Struct, frozen=True):
    """What a process has said so far."""

    stdout: str
    report: Path  # the JSON file, if it wrote one


Read = Callable[[Said], float | None]
Start = Callable[[Arm, Mapping[str, str], int, int], Process]


def step_on_stdout(said: Said) -> float | None:
    """The last whole line `mean step ms X`."""
    lines = TOLD.findall(said.stdout[: said.stdout.rfind("\n") + 1])
    return float(lines[-1]) if lines else None


def step_in_report(said: Said) -> float | None:
    """`step_ms` of the JSON file; None while it is not there, or half written."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        told: Any = msgspec.json.decode(said.report.read_bytes())
        if isinstance(told, dict) and isinstance(told.get("step_ms"), int | float):
            return float(told["step_ms"])
    return None


def fresh(arm: Arm, env: Mapping[str, str], stdout: int, stderr: int) -> Process:
    """The arm's command in a new process that leads its own group."""
    with same_input() as stdin:
        return subprocess.Popen(
            arm.argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(env),
            cwd=arm.cwd,
            start_new_session=True,
        )


class Plan(msgspec.Struct, frozen=True):
    """How a trial is run."""

    rounds: int = ROUNDS
    process_s: float = PROCESS_S  # what one process may take
    deadline_s: float = inf  # what all may take; what runs then is ended and counts for nothing
    stop_when_told: bool = False  # end a process as soon as it has told its step
    read: Read = step_on_stdout
    start: Start = fresh
    takes_s: Callable[[str], float] = lambda _name: 0.0  # that a process of an arm takes, as far as is known
    settled: Callable[[Trial, str], bool] = lambda _trial, _name: False  # an arm that needs no more processes
    tell: Callable[[str, Sample], None] = lambda _name, _sample: None  # progress


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[str, ...]]:
    """The order of the arms in each round: A B C, C B A, B C A, A C B, …

    Every second round is the one before turned round, so that a steady drift cancels out, whenever the trial
    ends; between those the arms are turned on, so that each comes early, late and between.
    """
    for number in range(rounds):
        first = number // 2 % len(names)
        order = (*names[first:], *names[:first])
        yield order if number % 2 == 0 else order[::-1]


def run_trial(arms: Sequence[Arm], plan: Plan | None = None) -> Trial:
    """Run all arms for all rounds; what was measured comes back, however it ended."""
    plan = plan or Plan()
    known = {arm.name: arm for arm in arms}
    trial = Trial({name: Outcome(name) for name in known})
    begin = time.monotonic()
    with Stop() as stop:
        until = begin + plan.deadline_s
        trial.ended = _rounds(trial, known, plan, stop, until)
    trial.seconds = time.monotonic() - begin
    return trial


def _rounds(trial: Trial, known: dict[str, Arm], plan: Plan, stop: Stop, until: float) -> Ended:
    turn = 0
    for order in turns(tuple(known), plan.rounds):
        left = [name for name in order if not (trial.arms[name].hopeless or plan.settled(trial, name))]
        if not left:
            return "enough"
        for name in left:
            if not trial.arms[name].samples and plan.settled(trial, name):
                continue  # what others told in this round spares it
            patience = _patience(trial, name, plan, until)
            if patience is None:
                trial.arms[name].is_late = True
                continue
            sample = _sample(known[name], plan, patience, turn, stop, until)
            if sample is None:
                return "interrupted" if stop.asked else "deadline"
            trial.arms[name].samples.append(sample)
            plan.tell(name, sample)
            turn += 1
    return "done"


class Patience(msgspec.Struct, frozen=True):
    """Seconds that a process may take, and whether it could have more if there were more time for all."""

    seconds: float
    by_budget: bool = False


def _patience(trial: Trial, name: str, plan: Plan, until: float) -> Patience | None:
    """For the next process of an arm, by what others took that went through. None: it is not started.

    What those need to be proven is theirs. One that takes more than half of the rest could not run a second
    time, so it could prove nothing. One that starts as they do is started all the same: it may be faster.
    """
    told = {other: _seconds(arm) for other, arm in trial.arms.items() if arm.runs_ms}
    own = told.pop(name, [])
    if not told:
        return Patience(plan.process_s)
    usual_s = min(map(max, told.values()))
    takes_s = max(plan.takes_s(name), usual_s)
    owed = sum(max(took) * max(LEAST_SAMPLES - len(took), 0) for took in told.values())
    left_s = (until - time.monotonic() - owed) / max(LEAST_SAMPLES - len(own), 1)
    if left_s < takes_s and takes_s > LONGER * usual_s:
        return None
    if own:
        return Patience(plan.process_s)
    most = min(plan.process_s, START_S + SLOWER * max(map(max, told.values())))
    return Patience(min(most, max(left_s, takes_s)), by_budget=max(left_s, takes_s) < most)


def _seconds(arm: Outcome) -> list[float]:
    return [one.seconds for one in arm.samples if one.step_ms is not None]


def _sample(arm: Arm, plan: Plan, patience: Patience, turn: int, stop: Stop, until: float) -> Sample | None:
    """One process from start to end; None if the trial ended under it."""
    if stop.asked or time.monotonic() >= until:
        return None
    with (
        tempfile.TemporaryDirectory(prefix="findwall-trial-") as folder,
        own_folder(arm.cwd) as cwd,
        overseen(REPORT, str(Path(folder, REPORT_NAME)), folder, cwd),
    ):
        return _run(replace(arm, cwd=cwd), plan, patience, turn, stop, until, Path(folder))


def _run(
    arm: Arm, plan: Plan, patience: Patience, turn: int, stop: Stop, until: float, folder: Path
) -> Sample | None:
    report, out, err = (folder / name for name in (REPORT_NAME, "stdout", "stderr"))
    begin = time.monotonic()
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        env = {**os.environ, **arm.env, REPORT: str(report)}
        try:
            process = plan.start(arm, env, stdout.fileno(), stderr.fileno())
        except OSError as problem:
            return Sample(turn, 0.0, failure=Failure("crashed", str(problem)))
    limit = min(begin + patience.seconds, until)
    try:
        step_ms = _watched(process, plan, lambda: Said(_tail(out), report), stop, limit)
        code = process.poll()
    finally:
        end(process, REPORT, str(report))
    seconds = time.monotonic() - begin
    if step_ms is not None:
        return Sample(turn, seconds, step_ms=step_ms, report=_report(report))
    if code is None and (stop.asked or time.monotonic() >= until):
        return None
    return Sample(turn, seconds, failure=_failure(code, patience, _tail(err)), report=_report(report))


def _watched(
    process: Process, plan: Plan, said: Callable[[], Said], stop: Stop, limit: float
) -> float | None:
    """Wait for the process; its step if it told one and did not fail after that."""
    while (code := process.poll()) is None:
        if stop.asked or time.monotonic() >= limit:
            return None
        if plan.stop_when_told and (early := plan.read(said())) is not None:
            return early
        time.sleep(LOOK_S)
    told = plan.read(said())
    return told if code == 0 or plan.stop_when_told else None


def _report(path: Path) -> ArmReport | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=ArmReport)
    return None


def _failure(code: int | None, patience: Patience, stderr: str) -> Failure:
    last = last_words(stderr)
    if code is None:
        if patience.by_budget:
            return Failure(
                "timed-out", f"took more than the {patience.seconds:.0f} s there were for it: {BUDGET}"
            )
        return Failure("timed-out", f"took more than {patience.seconds:.0f} s")
    if OUT_OF_MEMORY.search(stderr) and code != 0:
        return Failure("out-of-memory", last)
    if code == 0:
        return Failure("no-step", "ended before its steps were timed: let it run longer, or give --steps")
    if code == -signal.SIGKILL:
        return Failure("out-of-memory", "was killed by the system, most often for want of memory")
    return Failure("crashed", f"exit code {code}: {last}")


def last_words(stderr: str) -> str:
    """Of a process that failed: its error, which a launcher may have buried under a summary of its own."""
    lines = stderr.strip().splitlines()
    errors = [found[1] for line in lines if (found := ERROR.match(line)) and LAUNCHERS not in line]
    return (errors or lines or ["it said nothing"])[-1][-400:]


def _tail(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return file.read().decode(errors="replace")
