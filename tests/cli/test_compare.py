from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from findwall import cli

FIXTURES = Path(__file__).parents[1] / "fixtures"
TRACES = [FIXTURES / f"{name}.json.gz" for name in ("eager_training", "compiled_training")]
RUN = FIXTURES / "runs" / "late_rank"


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def document(folder: Path, name: str, step_ms: float) -> str:
    """A Diagnosis of a run whose steps were measured."""
    found: dict[str, Any] = json.loads((FIXTURES / "documents" / "full.json").read_bytes())
    found["step"] |= {"ms": step_ms, "source": "measured", "low_ms": step_ms - 0.1, "high_ms": step_ms + 0.1}
    found["step"] |= {"median_ms": step_ms, "p10_ms": step_ms - 0.2, "p90_ms": step_ms + 0.2}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(found))
    return str(path)


@pytest.fixture
def sides(tmp_path: Path) -> list[str]:
    """Four runs, and four that are 5 % slower."""
    before = [document(tmp_path, f"a{at}", step) for at, step in enumerate((40.0, 40.2, 39.9, 40.1))]
    after = [document(tmp_path, f"b{at}", 1.05 * step) for at, step in enumerate((40.1, 40.0, 40.2, 39.8))]
    return [*before, "--", *after]


def test_two_traces(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", *map(str, TRACES)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("CANNOT TELL: step ")
    assert "the step " in out and "appeared" in out and "vanished" in out
    assert max(map(len, out.splitlines())) <= 80
    assert err == ""


def test_a_run_against_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", str(RUN), str(RUN), "--fail-slower", "0%"]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("NO DIFFERENCE: step ") and "(0 %)" in out
    assert "One run a side: repeat to be sure" in " ".join(out.split())
    assert "what differs" not in out


def test_only_a_slow_down_that_is_real_and_large_enough_fails(
    sides: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["compare", *sides]) == 0
    assert cli._run(["compare", *sides, "--fail-slower", "3%"]) == 3
    assert cli._run(["compare", "--fail-slower", "3 %", *sides]) == 3
    assert capsys.readouterr().out.count("SLOWER: step 40.0 ms → 42.1 ms (+5.0 %)") == 3
    assert cli._run(["compare", *sides, "--fail-slower", "6%"]) == 0
    assert cli._run(["compare", *sides[5:], "--", *sides[:4], "--fail-slower", "3%"]) == 0
    assert "FASTER" in capsys.readouterr().out
    assert cli._run(["compare", sides[0], sides[1], "--fail-slower", "0.1%"]) == 0


def test_a_gate_without_timed_steps_says_that_it_judged_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", *map(str, reversed(TRACES)), "--fail-slower", "3%"]) == 0
    assert "--fail-slower judged nothing" in capsys.readouterr().err


def test_the_document(sides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "compared.json"
    assert cli._run(["compare", *sides, "--json", str(target)]) == 0
    assert "SLOWER" in capsys.readouterr().out
    assert cli._run(["compare", *sides, "--json", "-", "--fail-slower", "3%"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(target.read_bytes())
    assert found["schema"] == "findwall-compare/1"
    assert found["step"]["outcome"] == "slower" and found["step"]["rests_on"] == "runs"
    assert 0 < found["step"]["low"] < found["step"]["share"] < found["step"]["high"]
    assert sum(row["ms"] for row in found["budget"]) == pytest.approx(found["step"]["ms"])
    assert len(found["before"]["steps_ms"]) == 4


def test_markdown(sides: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", *sides, "--markdown"]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("### SLOWER: step 40.0 ms → 42.1 ms (+5.0 %)\n")
    assert "| wall | cause | A, ms | B, ms | change |" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no paths given"),
        (["a.json"], "1 path given"),
        (["a.json", "b.json", "c.json"], "3 paths given"),
        (["a.json", "--"], "no path after"),
        (["--", "a.json"], "no path before"),
        (["a", "--", "b", "--", "c"], "more than once"),
        (["a.json", "b.json", "--fail-slower", "0.03"], "is not a share"),
        (["a.json", "b.json", "--fail-slower", "-3%"], "is not a share"),
        (["missing.json", "b.json"], "missing.json"),
    ],
)
def test_wrong_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", *words]) == 2
    message, hint, *_ = capsys.readouterr().err.splitlines()
    assert said in message and hint.startswith("  ")


def test_half_a_document_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "half.json"
    path.write_text('{"schema": "findwall/1", "source": {}}')
    assert cli._run(["compare", str(path), str(path)]) == 2
    assert "no whole Diagnosis" in capsys.readouterr().err


def test_names_from_a_document_stay_text(capsys: pytest.CaptureFixture[str]) -> None:
    documents = [
        str(FIXTURES / "documents" / f"{name}.json") for name in ("hostile", "nothing_known", "full")
    ]
    for one in documents:
        for other in documents:
            assert cli._run(["compare", one, other]) == 0
            out, _ = capsys.readouterr()
            assert "\x1b" not in out and "\u202e" not in out
            assert max(map(len, out.splitlines())) <= 80
            assert cli._run(["compare", one, other, "--markdown"]) == 0
            assert "<script" not in capsys.readouterr().out.replace("\\<", "")


def test_help_shows_how_sides_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", "--help"]) == 0
    out, _ = capsys.readouterr()
    assert "A... [--] B..." in out


@pytest.mark.parametrize("name", ["x" * 1_000_000, "a b " * 100_000, "\x1b[2J\n", "…" * 5_000, ""])
def test_a_document_of_endless_names_is_compared(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = document(tmp_path, "a", 40.0), document(tmp_path, "b", 41.0)
    found = json.loads(Path(other).read_bytes())
    found["wall"] |= {"wall": name, "cause": name, "sentence": name}
    found["budget"][0] |= {"wall": name, "cause": name, "ms": 1e300}
    found["kernels"] = [{**found["kernels"][0], "name": name}] if found["kernels"] else []
    Path(other).write_text(json.dumps(found))
    for way in ([], ["--markdown"], ["--html", str(tmp_path / "c.html")]):
        assert cli._run(["compare", one, other, *way]) in (0, 2)
        out, err = capsys.readouterr()
        assert "bug" not in err
        assert len(out) < 100_000
        assert "\x1b" not in out
