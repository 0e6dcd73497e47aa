"""Walls and slow-downs that fail a command, and those that a team has accepted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from findwall import cli
from findwall.cli.around.gate import FAILED_EXIT, WallGate
from findwall.model.accepted import FILE, Accepted, find
from findwall.model.diagnosis import Wall
from jobs import Jobs, training
from soak.hang import hang_guard

FIXTURES = Path(__file__).parents[1] / "fixtures"
TRACE = str(FIXTURES / "jobs" / "odd_widths.json.gz")  # compute / misaligned-shapes
READ = ["read", TRACE, "--step-ms", "50.08", "--brief"]
needs_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository's root, in which nothing is accepted yet."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accept(folder: Path, **entry: str) -> None:
    lines = [f"{name} = {value if name == 'until' else json.dumps(value)}" for name, value in entry.items()]
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write("\n".join(["[[accept]]", *lines, ""]))


def test_a_wall_or_a_cause_that_is_the_verdict_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(READ) == 0
    assert cli._run([*READ, "--fail-wall", "data", "--fail-wall", "host-sync"]) == 0
    assert capsys.readouterr().err == ""
    for name in ("compute", "misaligned-shapes"):
        assert cli._run([*READ, "--fail-wall", "data", "--fail-wall", name]) == FAILED_EXIT
        out, err = capsys.readouterr()
        assert "THE WALL" in out
        assert f"--fail-wall {name}: the wall is compute / misaligned-shapes" in err and err.count("\n") == 1


def test_without_a_verdict_nothing_fails_and_that_is_said() -> None:
    gate = WallGate(["data"])
    for wall in (None, Wall(None, None, "", between=[["data", "loader-starved"]])):
        judged = gate.of_wall(wall)
        assert judged.code == 0 and "judged nothing" in judged.said
    assert WallGate([]).of_wall(None).said == ""


@needs_toml
@pytest.mark.parametrize(
    "entry", [{"wall": "compute"}, {"cause": "misaligned-shapes"}, {"until": "2999-01-01", "wall": "compute"}]
)
def test_what_is_accepted_is_said_and_passes(
    folder: Path, entry: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    accept(folder, why="the vendor's widths", **entry)
    assert cli._run([*READ, "--fail-wall", "compute"]) == 0
    said = capsys.readouterr().err
    assert "accepted" in said and "compute / misaligned-shapes (the vendor's widths)" in said
    assert ("until 2999-01-01" in said) == ("until" in entry)


@needs_toml
@pytest.mark.parametrize("entry", [{"wall": "data"}, {"cause": "slow-kernels"}, {"slower": "90%"}])
def test_what_is_accepted_of_others_does_not_pass(folder: Path, entry: dict[str, str]) -> None:
    accept(folder, why="-", **entry)
    assert cli._run([*READ, "--fail-wall", "compute"]) == FAILED_EXIT


@needs_toml
def test_what_has_expired_fails_again_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accept(folder, wall="compute", until="2020-02-29", why="for now")
    assert cli._run([*READ, "--fail-wall", "compute"]) == FAILED_EXIT
    assert "accepted only until 2020-02-29" in capsys.readouterr().err
    accept(folder, wall="compute", until="2999-12-31", why="renewed")
    assert cli._run([*READ, "--fail-wall", "compute"]) == 0


def test_an_entry_holds_through_its_last_day() -> None:
    entry = Accepted("-", wall="data", until="2027-01-01")
    assert [entry.is_over(day) for day in ("2026-12-31", "2027-01-01", "2027-01-02")] == [False, False, True]


def test_an_entry_of_a_script_is_of_no_other() -> None:
    entry = Accepted("-", wall="data", script="jobs/train.py")
    assert entry.is_of("/a/jobs/train.py") and entry.is_of("jobs/train.py")
    assert not any(map(entry.is_of, ("train.py", "jobs/old_train.py", "jobs/train.py.txt", None)))
    assert Accepted("-", wall="data").is_of(None)


@needs_toml
def test_a_trace_does_not_name_its_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accept(folder, wall="compute", script="train.py", why="-")
    assert cli._run([*READ, "--fail-wall", "compute"]) == FAILED_EXIT
    assert "does not name its script" in capsys.readouterr().err


def test_the_file_is_looked_for_up_to_the_repositorys_root(folder: Path) -> None:
    inner = folder / "jobs" / "vision"
    inner.mkdir(parents=True)
    assert find(inner) is None
    (folder / FILE).touch()
    assert find(inner) == folder / FILE
    (folder / "jobs" / FILE).touch()
    assert find(inner) == folder / "jobs" / FILE
    (inner / ".git").touch()  # a submodule: another repository
    assert find(inner) is None


@needs_toml
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[accept]\n", "is not TOML"),
        ("\xff\xfe", "is not TOML"),
        ("[[accepts]]\nwall='data'\nwhy='-'", "did you mean accept?"),
        ("accept = 3", "not a list of entries"),
        ("[[accept]]\nwal='data'\nwhy='-'", "did you mean wall?"),
        ("[[accept]]\nwall='dta'\nwhy='-'", "no wall is called 'dta' (did you mean data?)"),
        ("[[accept]]\ncause='loader-starve'\nwhy='-'", "did you mean loader-starved?"),
        ("[[accept]]\nwall='data'\ncause='host-sync'\nwhy='-'", "is a cause of the wall overhead"),
        ("[[accept]]\nwall='data'", "`why` is missing"),
        ("[[accept]]\nwhy='-'", "accepts a wall, a cause or a slow-down"),
        ("[[accept]]\nwall='data'\nslower='3%'\nwhy='-'", "not both"),
        ("[[accept]]\nslower='0.03'\nwhy='-'", "is not a share"),
        ("[[accept]]\nwall='data'\nwhy='-'\nuntil='soon'", "is not a day"),
        ("[[accept]]\nwall='data'\nwhy='-'\nuntil='2027-02-30'", "is not a day"),
        ("[[accept]]\nwall='data'\nwhy=''", "`why` is not a text"),
        ("[[accept]]\nwall=['data']\nwhy='-'", "`wall` is not a text"),
    ],
)
def test_a_file_that_cannot_be_meant_so_is_an_error(
    folder: Path, content: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FILE).write_text(content, encoding="latin-1")
    for words in (["read", "--fail-wall", "data", TRACE], ["run", "--fail-wall", "data", "missing.py"]):
        assert cli._run(words) == 2
        message, hint = capsys.readouterr().err.splitlines()
        assert said in message and FILE in message and hint.startswith("  ")
    assert cli._run(READ) == 0  # who asks for no gate need not mind


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_an_error(folder: Path) -> None:
    (folder / FILE).touch(mode=0o000)
    assert cli._run([*READ, "--fail-wall", "data"]) == 2


def test_a_gate_on_no_wall_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([*READ, "--fail-wall", "dta"], ["run", "--fail-wall", "dta", "missing.py"]):
        assert cli._run(words) == 2
        assert "did you mean data?" in capsys.readouterr().err


# Slow-downs


def document(folder: Path, name: str, step_ms: float) -> str:
    found: dict[str, Any] = json.loads((FIXTURES / "documents" / "full.json").read_bytes())
    found["step"] |= {"ms": step_ms, "source": "measured", "p10_ms": step_ms, "p90_ms": step_ms}
    (folder / name).write_text(json.dumps(found))
    return str(folder / name)


@needs_toml
def test_a_slow_down_that_is_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", document(folder, "a.json", 40.0), document(folder, "b.json", 44.0)]
    words += ["--fail-slower", "3%"]
    assert cli._run(words) == FAILED_EXIT
    assert "changed by +10 %, and +3.0 % is allowed" in capsys.readouterr().err
    accept(folder, slower="9%", why="too little")
    assert cli._run(words) == FAILED_EXIT
    accept(folder, slower="12%", until="2020-01-01", why="old")
    assert cli._run(words) == FAILED_EXIT
    assert "accepted only until 2020-01-01" in capsys.readouterr().err
    accept(folder, slower="12%", why="exact sums now")
    assert cli._run(words) == 0
    out, err = capsys.readouterr()
    assert "SLOWER" in out and "accepted" in err and "exact sums now" in err


# Jobs

VERDICT = """
    import json, pathlib, sys
    found = {"wall": "data", "cause": "loader-starved", "sentence": "It waits."}
    pathlib.Path(sys.argv[3]).write_text(json.dumps({"wall": found}))
"""
GATE = ("--wait", "2", "--steps", "6", "--no-trace", "--fail-wall", "data")


def run(
    jobs: Jobs, rest: str, options: tuple[str, ...] = GATE, verdict: str = VERDICT, **environ: str
) -> Any:
    path = jobs.write(verdict, "verdict.py")
    environ = {"FINDWALL_VERDICT_COMMAND": f"{sys.executable} {path}", **environ}
    return jobs.run(training(rest), options=options, **environ)


def test_a_job_that_ends_well_at_the_wall_exits_with_3(folder: Path) -> None:
    done = run(Jobs(folder, warm=True), "import os; os.mkdir('x'); os.chdir('x'); train(20); print('end')")
    assert done.code == FAILED_EXIT and done.stdout == "end\n"
    assert done.stderr.count("--fail-wall data: the wall is data / loader-starved; fix it") == 1


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(0)", 3), ("sys.exit(7)", 7), ("raise ValueError", 1), ("sys.exit('no')", 1)],
)
def test_the_exit_code_of_a_job_that_fails_is_its_own(folder: Path, end: str, code: int) -> None:
    done = run(Jobs(folder, warm=True), f"train(20); {end}")
    assert done.code == code and ("--fail-wall" in done.stderr) == (code == 3)


def test_a_job_that_goes_on_in_a_thread_is_judged_at_its_end(folder: Path) -> None:
    rest = """
        import atexit, threading, time
        atexit.register(print, 'left')
        train(20)
        threading.Thread(target=lambda: (time.sleep(0.5), print('end', flush=True))).start()
    """
    done = run(Jobs(folder, warm=True), rest)
    assert done.code == FAILED_EXIT and done.stdout == "end\nleft\n"
    assert done.stderr.count("--fail-wall data: the wall") == 1


def test_other_walls_children_and_jobs_without_a_verdict_pass(folder: Path) -> None:
    other = (*GATE[:-1], "comms")
    done = run(Jobs(folder / "other", warm=True), "train(20)", other)
    assert done.code == 0 and "--fail-wall" not in done.stderr
    forked = "import os; train(20); child = os.fork(); print(os.waitpid(child, 0)[1] if child else 'child')"
    done = run(Jobs(folder / "forked", warm=True), forked)
    assert done.code == FAILED_EXIT and done.stdout.split() == ["child", "0"]
    done = run(Jobs(folder / "broken", warm=True), "train(20)", verdict="raise SystemExit(2)")
    assert done.code == 0 and "judged nothing" in done.stderr
    done = run(Jobs(folder / "off", warm=True), "train(20)", FINDWALL_DISABLE="1")
    assert done.code == 0 and "judged nothing" in done.stderr


@needs_toml
def test_what_is_accepted_for_this_script_passes(folder: Path) -> None:
    accept(folder, cause="loader-starved", script="job.py", why="slow disk")
    done = run(Jobs(folder, warm=True), "train(20)")
    assert done.code == 0 and "accepted in .findwall.toml: the wall is data" in done.stderr
    (folder / FILE).write_text("")
    accept(folder, cause="loader-starved", script="other.py", why="slow disk")
    again = run(Jobs(folder, warm=True), "train(20)", (*GATE, "--out", "second"))
    assert again.code == FAILED_EXIT


@needs_toml
@pytest.mark.parametrize(
    "kind", ["device", "pipe", "folder", "huge", "brackets", "number", "no text", "ring"]
)
def test_a_file_that_nobody_can_mean_is_refused_in_a_line(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / FILE
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        path.write_bytes(b"#" * (300 << 10))
    elif kind == "brackets":
        path.write_text("accept = " + "[" * 100_000 + "]" * 100_000)
    elif kind == "number":
        path.write_text(f'[[accept]]\nwall = "data"\nwhy = "x"\nuntil = 0x{"f" * 100_000}\n')
    elif kind == "no text":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        (folder / "other").symlink_to(path)
        path.symlink_to(folder / "other")
    with hang_guard():
        code = cli._run([*READ, "--fail-wall", "data"])
    out, err = capsys.readouterr()
    if kind == "ring":  # it leads nowhere: there is no file
        assert code == 0
        return
    assert (code, out) == (2, "")
    assert FILE in err and "Traceback" not in err
    assert len(err.strip().splitlines()) == 2  # what is wrong, and what to do
