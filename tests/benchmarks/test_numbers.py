"""The numbers that decide: found wherever they stand, classed by a table that knows every one of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that the next one may import it
    spec.loader.exec_module(module)
    return module


LITERALS = loaded("literals")
COUNT = loaded("count_numbers")


def told(code: str) -> list[tuple[str, str, float, str]]:
    return [
        (one.name, one.place, one.value, one.harmless) for one in LITERALS.numbers_in(code, "room/file.py")
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("SHARE = 0.25", [("SHARE", "constant", 0.25, "")]),
        ("SMALL = 1 << 20", [("SMALL", "constant", 1 << 20, "")]),
        ("NS = 1\nLONG = 8 * NS", [("LONG", "constant", 8, "")]),
        ("MOST = 1.0 - SMALL\nNONE = 0\nBACK = -1", []),
        ("A, B = 2, 0.5", [("A", "constant", 2, ""), ("B", "constant", 0.5, "")]),
        ("SIDES = frozenset((64, 1, 128))", [("SIDES", "constant", 64, ""), ("SIDES", "constant", 128, "")]),
        ("HALF = SHARE / 2", [("HALF", "constant", 2, "")]),
        ("OF = {3: 'x', 'y': 0.7}", [("OF", "constant", 3, ""), ("OF", "constant", 0.7, "")]),
        ("class Job(Struct):\n    rounds: int = 3", [("Job.rounds", "constant", 3, "")]),
        (
            "def f(x, most=5, *, least=2): ...",
            [("f(least)", "default", 2, ""), ("f(most)", "default", 5, "")],
        ),
        ("class A:\n    def f(self): return self.x > 0.3 * self.y", [("A.f:0.3", "compared", 0.3, "")]),
        ("def f(x): return np.where(x, 1, np.clip(x, 0, 5))", [("f:5", "compared", 5, "")]),
        ("def f(x): return max(x, 7)", [("f:7", "compared", 7, "")]),
        ("def f(x): return 0.8 * x", [("f:0.8", "expression", 0.8, "")]),
        ("def f(x): return x[:12]", [("f:12", "expression", 12, "")]),
    ],
)
def test_numbers_are_found_wherever_they_stand(code: str, expected: list[Any]) -> None:
    assert told(code) == expected


@pytest.mark.parametrize(
    ("code", "harmless"),
    [
        ("def f(x): return x / 1e9", "unit"),
        ("def f(x): return x / 100", "unit"),
        ("def f(x, y): return x > y / 100", ""),
        ("def f(x): return f'{100 * x} %'", "shown"),
        ("def f(x): return x[2]", "format"),
        ("def f(x): return x[:, 2]", "format"),
        ("def f(x): return x.dims[-2:]", "format"),
        ("def f(x): return x.flag(7) is True", "format"),
        ("def f(x): return len(x.dims) in (3, 4)", "format"),
        ("def f(x): return x.dim() == 4", "format"),
        ("class Kind(IntEnum):\n    COPY = 6", "format"),
        ("def f(): return sys.version_info < (3, 11)", "format"),
        ("def f(x): return len(x) < 2", "numerics"),
        ("def f(x): return len(x) < 3", ""),
        ("def f(x, y): return 2 * len(x) > len(y)", ""),
        ("def f(x, y): return (x + y) / 2", "numerics"),
        ("def f(x, y): return x > y / 2", ""),
    ],
)
def test_only_what_cannot_decide_is_left_to_the_way_it_is_written(code: str, harmless: str) -> None:
    assert {one[3] for one in told(code)} == {harmless}


def test_a_row_outranks_a_rule_and_what_nobody_lists_decides() -> None:
    numbers = list(LITERALS.numbers_in("A = 2\nB = 3\ndef f(x): return x / 1e9", "causes/x.py"))
    rule = {"module": "causes/*", "class": "shown", "reason": "why"}
    table = COUNT.Table([rule], [{"module": "causes/x.py", "name": "A", "class": "limit", "reason": "why"}])
    assert [COUNT.class_of(one, table) for one in numbers] == ["limit", "shown", "shown"]
    assert [COUNT.class_of(one, COUNT.Table([], [])) for one in numbers] == ["decides", "decides", "unit"]
    assert len(COUNT.deciding(numbers, COUNT.Table([], []))) == 2


def test_the_table_is_told_what_is_gone_and_what_is_new() -> None:
    numbers = list(LITERALS.numbers_in("A = 2\nB = 3", "causes/x.py"))
    kept = {"module": "causes/x.py", "name": "A", "class": "limit", "reason": "why"}
    gone = {"module": "causes/x.py", "name": "C", "class": "limit", "reason": "why"}
    unused = {"module": "fixes/*", "class": "shown", "reason": "why"}
    said = COUNT.disagreements(numbers, COUNT.Table([unused], [kept, gone]))
    assert [line.split(":")[0] for line in said] == ["gone", "a rule for nothing", "not in the table"]


def test_a_refreshed_table_keeps_what_moved_and_drops_what_is_gone() -> None:
    numbers = list(LITERALS.numbers_in("A = 2\nB = 3", "causes/verdict.py"))
    known = {"name": "A", "class": "decides", "unit": "share", "reason": "why", "moves": "verdict"}
    gone = {"module": "causes/x.py", "name": "C", "class": "limit", "reason": "why"}
    table = COUNT.refreshed(numbers, COUNT.Table([], [{"module": "causes/x.py", **known}, gone]))
    assert table.rows[0] == {"module": "causes/verdict.py", **known}
    assert [(row["name"], row["class"]) for row in table.rows] == [("A", "decides"), ("B", "")]
    assert len(COUNT.deciding(numbers, table)) == 2


def test_data_files_count_too(tmp_path: Path) -> None:
    file = tmp_path / "errors.json"
    file.write_text('{"fused": [1.0, 0.25],\n "v2": -3e-2, "text": "16 of 5", "deep": {"x": [[7]]}}\n')
    assert [one.value for one in COUNT.numbers_in_file(file, "fixes/errors.json")] == [0.25, -0.03, 7]


def test_the_table_matches_the_tree() -> None:
    assert COUNT.disagreements(COUNT.found(), COUNT.read_table()) == []
