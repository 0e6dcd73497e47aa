"""What hangs on each number that decides: every one is tried at other values over the open recordings.

    python benchmarks/sensitivity.py                    all of them, into results/sensitivity.json and .md
    python benchmarks/sensitivity.py --only causes/     those of modules that begin so; nothing is written
    python benchmarks/sensitivity.py --quick            over a third of the recordings; nothing is written

Each number is switched off (0, and far beyond anything) and taken times 0.67 and 1.5, each in a fresh child
of a process that has read all recordings. What keeps that short is sound: a recording that never runs a line
in which the number is read is left out; facts are established again only where such a line is run for them;
and where they come out the same, to the byte, nothing that follows is done again unless it reads the number
too. One thing is only likely: a recording that does not change when the number is off either way is not tried
at the values between.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from typing import Any, NamedTuple

import golden
from count_numbers import ROOT, WAY, deciding, found, read_table
from findwall.examine import facts_of
from literals import Number
from perturbed import Package, Site, forget, run_lines

RESULTS = ROOT / "benchmarks" / "results"
OFF = {"0": 0.0, "far": 1e6}  # times the value
NEAR = {"x0.67": 0.67, "x1.5": 1.5}
LONGEST_S = 20.0  # of one recording, which takes a quarter of a second
MEMORY_BYTES = 6 << 30
WORKERS = os.cpu_count() or 2

Row = dict[str, Any]
Lines = set[tuple[str, int]]


class Told(NamedTuple):
    """What is said of a recording, as far as it is compared."""

    verdict: str
    first: str  # prescription
    score: str  # right, wrong, none, or unknown
    figures: dict[str, Any]


class Surveyed(NamedTuple):
    """A recording with all numbers as they are."""

    told: Told | str
    facts: str  # a digest
    lines: Lines  # run while its facts are established
    after: Lines  # and after that


class Task(NamedTuple):
    number: int
    variant: str
    rows: tuple[int, ...]


class State:
    """What all children share: read before they are forked."""

    package: Package
    numbers: list[Number]
    rows: list[Row]
    runs: list[Any]
    facts: list[Any]
    sites: list[list[Site]]
    surveyed: list[Surveyed]


# -- one recording ----------------------------------------------------------------------------------------


def tell(row: Row, run: Any, facts: list[Any] | None) -> Told | str:
    """What is said of a recording with these facts; in one word where nothing is. None: it has none."""
    import msgspec

    from findwall.errors import FindwallError
    from findwall.examine import examination

    examination.facts_of = facts_of if facts is None else lambda *_: facts
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        document = msgspec.to_builtins(examination.examine(run, row.get("step_ms")))
    except FindwallError:
        return "refused"
    except TimeoutError:
        return "took too long"
    except Exception as error:
        return f"failed: {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    document = {key: golden._rounded(one) for key, one in document.items() if key not in golden.LEFT_OUT}
    figures = {key: one for key, one in golden._flat(document) if not isinstance(one, str) and _counts(key)}
    first = next(("+".join(one["fixes"]) for one in document["prescriptions"]), "")
    return Told(golden._verdict(document), first, _score(row, document), figures)


def _counts(key: str) -> bool:
    """The kernel table follows from the rest."""
    return not key.startswith("kernels[")


def _score(row: Row, document: Row) -> str:
    cause = (document.get("wall") or {}).get("cause")
    if not row.get("accepted"):
        return "unknown"
    return "none" if cause is None else "right" if cause in [one[1] for one in row["accepted"]] else "wrong"


def difference(before: Told | str, after: Told | str) -> Row:
    """What of a recording changed; empty: nothing."""
    if isinstance(before, str) or isinstance(after, str):
        key = "broken" if _word(after).startswith(("failed", "took")) else "verdict"
        return {} if before == after else {key: [_word(before), _word(after)]}
    changed: Row = {}
    for key in ("verdict", "first", "score"):
        if getattr(before, key) != getattr(after, key):
            changed[key] = [getattr(before, key), getattr(after, key)]
    keys = dict.fromkeys((*before.figures, *after.figures))
    figures = sum(golden._differs(before.figures.get(key), after.figures.get(key)) for key in keys)
    return changed | ({"figures": figures} if figures else {})


def _word(told: Told | str) -> str:
    return told if isinstance(told, str) else told.verdict


# -- in children ------------------------------------------------------------------------------------------


def _too_long(*_: Any) -> None:
    raise TimeoutError


def _begin() -> None:
    gc.unfreeze()  # functions and what they remember are looked for among all objects
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    forget()


def established(row: Row, run: Any) -> list[Any] | None:
    """The facts of a recording; None where that fails, which `tell` then says."""
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        return facts_of(run, row.get("step_ms"))
    except Exception:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def digest(facts: list[Any] | None) -> str:
    return hashlib.sha256(pickle.dumps(facts)).hexdigest()


def survey(at: int) -> Surveyed:
    """What is said of a recording as it is, and the lines it runs: for its facts, and after that."""
    _begin()
    row, run = State.rows[at], State.runs[at]
    sites = [site for sites in State.sites for site in sites]
    lines = run_lines(sites)
    facts = established(row, run)
    mark = digest(facts)
    after = run_lines(sites)
    told = tell(row, run, facts)
    sys.settrace(None)
    return Surveyed(told, mark, lines, after)


def attempt(task: Task) -> tuple[Task, dict[int, Row]]:
    """A number at another value: what changes in which recordings."""
    _begin()
    number = State.numbers[task.number]
    try:
        State.package.put(number, _value(number, task.variant))
    except ArithmeticError as error:  # another constant is divided by it: nothing works without
        return task, {at: {"broken": ["read", f"failed: {type(error).__name__}"]} for at in task.rows}
    gc.freeze()
    changed = {at: _changes(task.number, at) for at in task.rows}
    return task, {at: changes for at, changes in changed.items() if changes}


def _changes(number: int, at: int) -> Row:
    row, run, before = State.rows[at], State.runs[at], State.surveyed[at]
    facts = State.facts[at]
    if _is_run(number, before.lines):
        facts = established(row, run)
        if not _is_run(number, before.after) and digest(facts) == before.facts:
            return {}
    return difference(before.told, tell(row, run, facts))


def _value(number: Number, variant: str) -> float:
    """Counts stay whole, and move by one at least; far beyond is not so far that a search never ends."""
    if variant in OFF:
        scale = OFF[variant] if isinstance(number.value, float) else min(OFF[variant], 1000)
        return type(number.value)(number.value * scale)
    value = number.value * NEAR[variant]
    if isinstance(number.value, float):
        return value
    return min(int(value), number.value - 1) if value < number.value else max(round(value), number.value + 1)


def _is_run(number: int, lines: Lines) -> bool:
    return any(
        (site.file, line) in lines
        for site in State.sites[number]
        for line in range(site.first, site.last + 1)
    )


def _children(work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterable[Any]:
    """Each task in a child of its own, as many at a time as there are cores."""
    with get_context("fork").Pool(WORKERS, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(work, tasks, chunksize=1)


# -- all of it --------------------------------------------------------------------------------------------


def prepare(only: str, quick: bool) -> None:
    """Read everything, and find out which recordings read which numbers."""
    from findwall.readers import open_run

    State.package = Package(WAY)
    State.package.load()
    State.numbers = [one for one in deciding(found(), read_table()) if one.module.startswith(only)]
    State.sites = [State.package.sites(one) for one in State.numbers]
    State.rows = [row for row in golden._recordings() if not row["drawn"]][:: 3 if quick else 1]
    read = {row["path"]: open_run([ROOT / row["path"]]) for row in State.rows}
    State.runs = [read[row["path"]] for row in State.rows]
    with get_context("fork").Pool(WORKERS, maxtasksperchild=1) as pool:
        State.surveyed = pool.map(survey, range(len(State.rows)), chunksize=1)
    State.facts = [established(row, run) for row, run in zip(State.rows, State.runs, strict=True)]
    gc.freeze()  # what is here already is never searched for garbage, and so not copied, in any child


def try_all() -> tuple[dict[int, dict[str, dict[int, Row]]], dict[int, tuple[int, ...]]]:
    """The changes of every number by variant, and the recordings that read it."""
    reading = {
        at: tuple(row for row, one in enumerate(State.surveyed) if _is_run(at, one.lines | one.after))
        for at, one in enumerate(State.numbers)
        if _can_be_put(one)
    }
    changes: dict[int, dict[str, dict[int, Row]]] = {at: {} for at in reading}
    first = [Task(at, variant, rows) for at, rows in reading.items() if rows for variant in OFF]
    _gather(first, changes)
    between = []
    for at, found_off in changes.items():
        moved = tuple(sorted({row for rows in found_off.values() for row in rows}))
        between += [Task(at, variant, moved) for variant in NEAR if moved]
    _gather(between, changes)
    return changes, reading


def _gather(tasks: list[Task], changes: dict[int, dict[str, dict[int, Row]]]) -> None:
    began, looked = time.monotonic(), sum(len(task.rows) for task in tasks)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    print(f"{len(tasks)} variants, {looked} looks at a recording", file=sys.stderr)
    for task, changed in _children(attempt, tasks):
        changes[task.number][task.variant] = changed
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    print(f"   {time.monotonic() - began:.0f} s, {spent:.0f} s of the cores", file=sys.stderr)


def _can_be_put(number: Number) -> bool:
    return number.place != "default" and not (number.place == "constant" and "." in number.name)


# -- what is written --------------------------------------------------------------------------------------


def rows_of(changes: dict[int, dict[str, dict[int, Row]]], reading: dict[int, tuple[int, ...]]) -> list[Row]:
    table = read_table()
    listed = []
    for at, number in enumerate(State.numbers):
        row = {"number": number.name, "module": number.module, "line": number.line, "value": number.value}
        row |= {"unit": (table.row(number) or {}).get("unit", ""), "baked": State.package.is_baked(number)}
        row |= {"read_by": len(reading[at]) if at in reading else None}
        row["variants"] = {
            variant: {State.rows[one]["name"]: what for one, what in changed.items()}
            for variant, changed in sorted(changes.get(at, {}).items())
            if changed
        }
        listed.append(row)
    return listed


def table_of(listed: list[Row]) -> str:
    """Markdown, what moves most verdicts first."""
    heads = ("number", "module", "value", "unit", "read by", "verdicts", "first fixes", "worse", "better")
    heads += ("figures", "broken")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in sorted(listed, key=lambda row: (-_moved(row, "verdict")[0], row["module"], row["number"])):
        verdicts, first = _moved(row, "verdict")[1], _moved(row, "first")[1]
        worse, better = _scored(row, "right", 0), _scored(row, "right", 1)
        only = {
            name
            for changed in row["variants"].values()
            for name, what in changed.items()
            if [*what] == ["figures"]
        }
        read = "not tried" if row["read_by"] is None else row["read_by"]
        figures = (
            f"{row['value']:g}",
            row["unit"],
            read,
            verdicts,
            first,
            worse,
            better,
            len(only),
            _moved(row, "broken")[1],
        )
        lines.append(
            f"| `{row['number']}` | {row['module']}:{row['line']} | " + " | ".join(map(str, figures)) + " |"
        )
    return "\n".join(lines) + "\n"


def _moved(row: Row, key: str) -> tuple[int, str]:
    """Recordings in which something changed, and how many by variant."""
    by_variant = {
        variant: {name for name, what in changed.items() if key in what}
        for variant, changed in row["variants"].items()
    }
    names = set().union(*by_variant.values()) if by_variant else set()
    return len(names), ", ".join(f"{variant}: {len(one)}" for variant, one in by_variant.items() if one)


def _scored(row: Row, word: str, side: int) -> int:
    """Recordings whose score was, or became, this word in any variant."""
    return len(
        {
            name
            for changed in row["variants"].values()
            for name, what in changed.items()
            if "score" in what and what["score"][side] == word
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", metavar="MODULE", help="numbers of modules that begin so")
    parser.add_argument("--quick", action="store_true", help="a third of the recordings")
    asked = parser.parse_args()
    prepare(asked.only, asked.quick)
    listed = rows_of(*try_all())
    print(table_of(listed))
    if not asked.only and not asked.quick:
        lines = ",\n".join(json.dumps(row) for row in listed)
        (RESULTS / "sensitivity.json").write_text(f"[\n{lines}\n]\n")
        (RESULTS / "sensitivity.md").write_text(table_of(listed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
