"""What `results/never_wrong.json` holds: what `findwall run` said of jobs that nobody edited, as it fell.

    python benchmarks/never_wrong.py    right, wrong and no verdicts of each blind round

`zoo` and `zoo_*_run` are the jobs of `zoo/` with their fixes really made. `blind_round_*` are the jobs of
`blind/`, each round run once; a round that was run no longer counts as unseen, and `since` tells what the
mended rules say of the same recording. `labels_measured` holds truths that were constructed first and
measured later, `guest` what a job's own clock says with and without findwall.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec

KEPT = Path(__file__).resolve().parent / "results" / "never_wrong.json"
Milliseconds = float | list[float] | None  # one run, or each of several
From = Literal["the first step", "the start of the process"]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A field that is not named here is an error."""


class Fixed(Strict):
    """A job with a fix really made."""

    step_ms: float
    runs_ms: list[float] = []
    plain_ms: list[float] = []  # the job without it, measured in turns with it
    speedup: float | None = None
    spread: float | None = None


class Measured(Strict):
    """A job as its own clock has it, plain and with its fixes."""

    step_ms: float
    runs_ms: list[float]
    fixes: dict[str, Fixed]
    spread: float | None = None
    in_one_process: bool = False


class Interval(Strict):
    low: float | None = None
    mid: float | None = None
    high: float | None = None


class Said(Strict):
    """What was said of a job. `truth`: the causes its author built in, with " or " between."""

    cause: str | None
    truth: str = ""
    step_ms: float | None = None
    seconds: int | None = None
    why: str = ""  # no cause was named
    since: str = ""
    budget: list[tuple[str, float, float]] = []  # cause, its time, what of it comes back
    kinds: list[tuple[str, float, float, int | None, str]] = []  # name, share of steps, ms, every, what
    alone_ms: float | None = None  # timed without findwall
    measured: Measured | None = None
    fixes_ms: dict[str, float] = {}
    measured_ms: dict[str, Milliseconds] = {}
    measured_again_ms: dict[str, Milliseconds] = {}
    bound_ms: dict[str, Milliseconds] = {}  # the shortest step that was called possible
    said_ms: dict[str, Interval] = {}
    predicted_ms: Interval | None = None

    @property
    def outcome(self) -> str:
        if self.cause is None:
            return "none"
        return "right" if self.cause in self.truth.split(" or ") else "wrong"


class Counts(Strict):
    right: int
    none: int
    wrong: int


class Jobs(Strict):
    """Jobs that were run together."""

    jobs: dict[str, Said]
    what: str = ""
    date: str = ""
    seconds_from: From | None = None  # to the last line written


class Round(Jobs, kw_only=True):
    """Jobs that the rules had not seen, with how many verdicts were right."""

    right: int
    none: int
    wrong: int
    not_run: list[str] = []
    mended_since: dict[str, str] = {}
    with_labels_measured: Counts | None = None


class Again(Strict):
    """Names of jobs by what was said of them when they were run again; `since`: and once more."""

    what: str
    right: list[str]
    none: list[str]
    wrong: list[str]
    since: Again | None = None


class NeverWrong(Strict):
    date: str
    gpu: str
    torch: str
    python: str
    what: str
    zoo: dict[str, Said]
    zoo_second_run: Jobs
    zoo_third_run: Jobs
    zoo_fourth_run: Jobs
    blind_round_1: Round
    blind_round_2: Round
    blind_round_3: Round
    blind_round_5: Round
    blind_round_6: Round
    blind_round_7: Round
    blind_round_8: Round
    blind_round_9: Round
    blind_round_10: Round
    run_again: Again
    labels_measured: dict[str, Any]  # of each job: ms by what was changed, and what that means
    guest: dict[str, Any]  # of each job: ms by how it was run

    def rounds(self) -> dict[str, Round]:
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: one for name, one in found.items() if isinstance(one, Round)}


def load() -> NeverWrong:
    return msgspec.json.decode(KEPT.read_bytes(), type=NeverWrong)


def counted(one: Round) -> dict[str, int]:
    found = Counter(said.outcome for said in one.jobs.values())
    return {name: found[name] for name in ("right", "none", "wrong")}


def main() -> None:
    for name, one in load().rounds().items():
        sys.stdout.write(f"{name}: {counted(one)}\n")


if __name__ == "__main__":
    main()
