"""Every number that decides anything, counted over the syntax tree and held against a table.

    python benchmarks/count_numbers.py           counts by room and class, then every number that decides
    python benchmarks/count_numbers.py --check   fails where table and tree disagree, or too many decide
    python benchmarks/count_numbers.py --write   keeps the rows that still match, adds new ones, drops others

A number is a literal of src/findwall anywhere but 0, 1 and -1; arithmetic on literals alone is one.
Its class comes from numbers.json: from its own row, else from the first rule that fits, else from the way it
is written (`harmless` in literals.py), else it decides. So nothing hides: what nobody listed counts.
(It is not called numbers.py: beside that name no script here could import numpy, which wants Python's own.)
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from literals import Number, numbers_in

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "findwall"
TABLE = ROOT / "benchmarks" / "numbers.json"
LIMIT = 120  # numbers that may decide on the way from a recording to its verdict and advice

WAY = ("step", "work", "dataflow", "replay", "ranks", "facts")
WAY += ("causes", "fixes", "examine", "model", "ncu", "op", "probe")
CLASSES = {
    "decides": "moves a verdict, a cause's time, a prediction, an advice, a step's boundaries or a refusal",
    "measured": "read off hardware, or counted from what an op does",
    "unit": "converts",
    "format": "sizes of types, places of arguments, ranks of tensors, codes, versions, bits",
    "shown": "how much a person sees",
    "limit": "bounds time, memory and size, to protect",
    "numerics": "iterations, tolerances of float sums, what arithmetic needs",
}

Row = dict[str, Any]


# -- the tree ---------------------------------------------------------------------------------------------


def found(source: Path = SOURCE) -> list[Number]:
    """All numbers of the package, data files included."""
    every: list[Number] = []
    for path in sorted(source.rglob("*.py")):
        every += numbers_in(path.read_text(), path.relative_to(source).as_posix())
    for path in sorted((*source.rglob("*.json"), *source.rglob("*.toml"))):
        every += numbers_in_file(path, path.relative_to(source).as_posix())
    return every


def numbers_in_file(path: Path, module: str) -> Iterator[Number]:
    """The numbers of a data file, each by the key it stands under."""
    if path.suffix == ".toml":
        import tomllib  # not in Python 3.10, and no file asks for it so far

        read = tomllib.loads(path.read_text())
    else:
        read = json.loads(path.read_text())
    for key, value in _leaves(read, ""):
        if type(value) in (int, float) and value not in (0, 1, -1):
            yield Number(module, key, "file", value, 1)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, key)
    else:
        yield key, value


def statements(source: Path = SOURCE) -> Counter[str]:
    """Statements of each room."""
    counts: Counter[str] = Counter()
    for path in source.rglob("*.py"):
        inside = path.relative_to(source).parts
        room = inside[0] if len(inside) > 1 else "."
        counts[room] += sum(isinstance(one, ast.stmt) for one in ast.walk(ast.parse(path.read_text())))
    return counts


# -- the table --------------------------------------------------------------------------------------------


class Table:
    """What is said of numbers: of one by its row, of many by a rule."""

    def __init__(self, rules: list[Row], rows: list[Row]) -> None:
        self.rules, self.rows = rules, rows
        self._by_name = {(row["module"], row["name"]): row for row in rows}

    def row(self, number: Number) -> Row | None:
        """What the table says of a number: its own row, else the first rule that fits."""
        own = self._by_name.get((number.module, number.name))
        return own or next((rule for rule in self.rules if _fits(rule, number)), None)


def _fits(rule: Row, number: Number) -> bool:
    fits = fnmatchcase(number.module, rule["module"]) and fnmatchcase(number.name, rule.get("name", "*"))
    return fits and rule.get("place", number.place) == number.place


def read_table(path: Path = TABLE) -> Table:
    read = json.loads(path.read_text())
    return Table(read["rules"], read["numbers"])


def class_of(number: Number, table: Table) -> str:
    """The class of a number; 'decides' where nobody says otherwise."""
    row = table.row(number)
    return (row["class"] if row else number.harmless) or "decides"


def deciding(numbers: Iterable[Number], table: Table, rooms: Iterable[str] = WAY) -> list[Number]:
    rooms = set(rooms)
    return [one for one in numbers if one.room in rooms and class_of(one, table) == "decides"]


def disagreements(numbers: list[Number], table: Table) -> list[str]:
    """Rows and rules that fit nothing, numbers without a row, and rows that leave something out."""
    there = {(one.module, one.name) for one in numbers}
    keys = Counter((row["module"], row["name"]) for row in table.rows)
    said = [f"gone: {module} {name}" for module, name in keys if (module, name) not in there]
    said += [f"twice: {module} {name}" for (module, name), count in keys.items() if count > 1]
    said += [
        f"a rule for nothing: {rule}" for rule in table.rules if not any(_fits(rule, one) for one in numbers)
    ]
    unlisted = [
        one for one in numbers if class_of(one, table) == "decides" and (one.module, one.name) not in keys
    ]
    said += [f"not in the table: {one.module} {one.name}" for one in dict.fromkeys(unlisted)]
    for row in (*table.rules, *table.rows):
        wanted = ("unit", "reason", "moves") if row["class"] == "decides" else ("reason",)
        if row["class"] not in CLASSES or not all(row.get(key) for key in wanted):
            said.append(f"not told whole: {row['module']} {row.get('name', '*')}")
    return said


# -- writing it anew --------------------------------------------------------------------------------------


def refreshed(numbers: list[Number], table: Table) -> Table:
    """The table with a row for everything that decides, and none for what is gone. A number that moved to
    another module with its name takes its row along; a new one has no class yet, and so decides."""
    there = {(one.module, one.name) for one in numbers}
    rows = [row for row in table.rows if (row["module"], row["name"]) in there]
    gone = {row["name"]: row for row in table.rows if (row["module"], row["name"]) not in there}
    kept = {(row["module"], row["name"]) for row in rows}
    for one in numbers:
        if class_of(one, table) == "decides" and (one.module, one.name) not in kept:
            kept.add((one.module, one.name))
            known = gone.pop(one.name, None) or {"name": one.name, "class": "", "reason": comment_at(one)}
            rows.append({**known, "module": one.module})
    rules = [rule for rule in table.rules if any(_fits(rule, one) for one in numbers)]
    in_order = ("module", "name", "class", "unit", "reason", "moves")
    rows = [{key: row[key] for key in in_order if key in row} for row in rows]
    return Table(rules, sorted(rows, key=lambda row: (row["module"], row["name"])))


def comment_at(number: Number) -> str:
    """What the source says beside a number or right above it."""
    lines = (SOURCE / number.module).read_text().splitlines()
    beside = lines[number.line - 1].partition("  # ")[2]
    above: list[str] = []
    for line in reversed(lines[: number.line - 1]):
        if beside or not line.strip().startswith("# "):
            break
        above.insert(0, line.strip()[2:])
    return beside or " ".join(above)


def write_table(table: Table, path: Path = TABLE) -> None:
    """One row a line, so that a change of one is a change of one line."""
    parts = (
        f'"{key}": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for key, rows in (("rules", table.rules), ("numbers", table.rows))
    )
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


# -- what a person reads ----------------------------------------------------------------------------------


def _print_counts(numbers: list[Number], table: Table) -> None:
    counts = Counter((one.room, class_of(one, table)) for one in numbers)
    print(f"{'room':14}" + "".join(f"{name:>10}" for name in CLASSES))
    for room in sorted({one.room for one in numbers}, key=lambda room: (room not in WAY, room)):
        print(f"{room:14}" + "".join(f"{counts[room, name]:10}" for name in CLASSES))
    rest = sorted({one.room for one in numbers} - set(WAY))
    print(
        f"\n{len(deciding(numbers, table))} numbers decide on the way to verdict and advice, {LIMIT} may:",
        *WAY,
    )
    print(f"{len(deciding(numbers, table, rest))} decide in the agent, the trials and elsewhere:", *rest)


def _print_statements() -> None:
    now = statements()
    print("\nStatements: " + ", ".join(f"{room} {count}" for room, count in sorted(now.items())))
    print(f"In all {sum(now.values())}.")


def _print_deciding(numbers: list[Number], table: Table) -> None:
    """A line for each name, with all its numbers."""
    named: dict[tuple[str, str], list[Number]] = {}
    for one in deciding(numbers, table, {one.room for one in numbers}):
        named.setdefault((one.module, one.name), []).append(one)
    print("\n| number | value | unit | why | moves | where |\n|---|---|---|---|---|---|")
    for (module, name), ones in named.items():
        row = table.row(ones[0]) or {}
        values = ", ".join(f"{one.value:g}" for one in ones)
        told = " | ".join(row.get(key, "") for key in ("unit", "reason", "moves"))
        print(f"| {name} | {values} | {told} | {module}:{ones[0].line} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where table and tree disagree")
    parser.add_argument("--write", action="store_true", help="bring the table up to the tree")
    asked = parser.parse_args()
    numbers, table = found(), read_table()
    if asked.write:
        write_table(table := refreshed(numbers, table))
    _print_counts(numbers, table)
    _print_statements()
    if not asked.check:
        _print_deciding(numbers, table)
        return 0
    wrong = disagreements(numbers, table)
    if len(deciding(numbers, table)) > LIMIT:
        wrong.append(f"more than {LIMIT} numbers decide")
    print("\n".join(wrong) or "The table and the tree agree.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
