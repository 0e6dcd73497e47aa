"""The runner of trials, on processes that last milliseconds: order, failures, ends, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from findwall.trial import arms_in_turn
from findwall.trial.arms_in_turn import (
    Arm,
    Outcome,
    Plan,
    Said,
    Sample,
    Trial,
    _patience,
    run_trial,
    step_in_report,
    step_on_stdout,
    turns,
)

FOREVER = "import time; time.sleep(600)"


def arm(name: str, code: str, **env: str) -> Arm:
    return Arm(name, (sys.executable, "-S", "-c", code), env)


def telling(name: str, step_ms: float) -> Arm:
    return arm(name, f"print('mean step ms', {step_ms})")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    """Init takes a moment to bury what was not our own child."""
    until = time.monotonic() + 5
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


def test_two_arms_take_turns_and_their_steps_are_read() -> None:
    order: list[str] = []
    trial = run_trial(
        [telling("plain", 10.0), telling("fixed", 8.5)],
        Plan(rounds=2, tell=lambda name, _: order.append(name)),
    )
    assert order == ["plain", "fixed", "fixed", "plain"]
    assert trial.ended == "done"
    assert trial.arms["plain"].runs_ms == [10.0, 10.0]
    assert trial.arms["fixed"].median_ms == 8.5
    assert [one.turn for one in trial.arms["plain"].samples] == [0, 3]


@given(st.integers(1, 9), st.integers(1, 9))
def test_every_arm_runs_once_a_round(arms: int, rounds: int) -> None:
    names = [str(number) for number in range(arms)]
    found = list(turns(names, rounds))
    assert len(found) == rounds
    assert all(Counter(order) == Counter(names) for order in found)


@given(st.integers(2, 9), st.integers(2, 9))
def test_a_drift_hits_all_arms_alike(arms: int, rounds: int) -> None:
    """Each arm's mean place in its rounds; without turns they would lie `arms - 1` apart."""
    names = [str(number) for number in range(arms)]
    places = dict.fromkeys(names, 0.0)
    for order in turns(names, rounds):
        for place, name in enumerate(order):
            places[name] += place / rounds
    apart = max(places.values()) - min(places.values())
    assert apart <= arms / rounds
    if rounds % 2 == 0:
        assert apart == pytest.approx(0)


def test_a_step_can_come_from_a_file() -> None:
    code = """
import json, os
open(os.environ["FINDWALL_REPORT"], "w").write(json.dumps({"step_ms": float(os.environ["STEP"])}))
"""
    trial = run_trial([arm("a", code, STEP="3.5")], Plan(rounds=1, read=step_in_report))
    assert trial.arms["a"].runs_ms == [3.5]


def test_half_a_line_and_half_a_file_are_not_read(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert step_on_stdout(Said("mean step ms 12", report)) is None
    assert step_on_stdout(Said("mean step ms 12.5\nmean step ms 1", report)) == 12.5
    assert step_in_report(Said("", report)) is None
    report.write_text('{"step_')
    assert step_in_report(Said("", report)) is None
    report.write_text('{"step_ms": "fast"}')
    assert step_in_report(Said("", report)) is None


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("raise SystemExit('no such layer')", "crashed"),
        ("print('mean step ms 1.0'); raise SystemExit(3)", "crashed"),
        ("raise SystemExit('torch.OutOfMemoryError: CUDA out of memory.')", "out-of-memory"),
        ("import os; os.kill(os.getpid(), 9)", "out-of-memory"),
        ("print('hello')", "no-step"),
        (FOREVER, "timed-out"),
    ],
)
def test_a_failed_process_is_one_sample_and_the_rest_goes_on(code: str, trouble: str) -> None:
    trial = run_trial([arm("bad", code), telling("good", 2.0)], Plan(rounds=3, process_s=1.5))
    bad, good = trial.arms["bad"], trial.arms["good"]
    assert good.runs_ms == [2.0, 2.0, 2.0]
    assert bad.runs_ms == [] and bad.median_ms is None
    often = 1 if trouble == "timed-out" else 2  # and then it is left alone
    assert [one.trouble for one in bad.failures] == [trouble] * often
    assert trial.ended == "done"


def test_one_that_hangs_leaves_time_for_the_others() -> None:
    arms = [telling("plain", 2.0), arm("hangs", FOREVER), telling("good", 1.0)]
    trial = run_trial(arms, Plan(rounds=2, deadline_s=8.0))
    assert [one.trouble for one in trial.arms["hangs"].failures] == ["timed-out"]
    assert trial.arms["hangs"].failures[0].what.endswith("there were for it: --budget gives it more time")
    assert trial.arms["good"].runs_ms == [1.0, 1.0] and trial.ended == "done"


def test_what_others_need_for_their_proof_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 20 s that went through once, and one that starts slowly."""
    monkeypatch.setattr(arms_in_turn, "time", SimpleNamespace(monotonic=lambda: 0.0))
    once = [Sample(0, 20.0, step_ms=1.0)]
    trial = Trial(
        {name: Outcome(name, list(once)) for name in ("plain", "quick")} | {"slow": Outcome("slow")}
    )

    def patience(name: str, left_s: float, takes_s: float = 25.0) -> float | None:
        found = _patience(trial, name, Plan(takes_s=lambda _name: takes_s), left_s)
        return None if found is None else found.seconds

    assert patience("slow", 100.0) == 30.0  # half of the rest, as it needs a second one
    assert patience("slow", 85.0) is None and patience("slow", 100.0, takes_s=31.0) is None
    assert patience("slow", 85.0, takes_s=20.0) == 22.5  # it starts as they do
    trial.arms["slow"].samples += [Sample(2, 25.0, step_ms=0.5)]
    assert patience("slow", 66.0) is not None and patience("slow", 64.0) is None


def test_a_failure_says_what_the_process_said_last() -> None:
    trial = run_trial([arm("bad", "raise SystemExit('no such layer')")], Plan(rounds=1))
    assert "no such layer" in trial.arms["bad"].failures[0].what


def test_a_command_that_is_not_there_is_a_failure_too() -> None:
    trial = run_trial([Arm("bad", ("/no/such/program",)), telling("good", 2.0)], Plan(rounds=1))
    assert trial.arms["bad"].failures[0].trouble == "crashed"
    assert trial.arms["good"].runs_ms == [2.0]


def test_an_arm_that_fails_now_and_then_keeps_its_turns(tmp_path: Path) -> None:
    code = f"""
import pathlib
count = pathlib.Path({str(tmp_path / "count")!r})
seen = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (seen + 1))
assert seen != 1
print("mean step ms", 5.0)
"""
    found = run_trial([arm("a", code)], Plan(rounds=3)).arms["a"]
    assert found.runs_ms == [5.0, 5.0]
    assert len(found.failures) == 1


def test_a_process_can_be_ended_once_it_has_told() -> None:
    code = f"print('mean step ms 4.0', flush=True)\n{FOREVER}"
    begin = time.monotonic()
    trial = run_trial([arm("a", code)], Plan(rounds=2, stop_when_told=True))
    assert trial.arms["a"].runs_ms == [4.0, 4.0]
    assert time.monotonic() - begin < 10


def test_the_deadline_keeps_what_was_measured() -> None:
    trial = run_trial([telling("good", 2.0)], Plan(rounds=1000, deadline_s=2.0))
    assert trial.ended == "deadline" and set(trial.arms["good"].runs_ms) == {2.0}
    trial = run_trial([arm("slow", FOREVER)], Plan(deadline_s=1.0))
    assert trial.ended == "deadline"
    assert trial.arms["slow"].samples == []  # ended by us: not its failure
    assert trial.seconds < 5


def test_a_trial_stops_when_it_has_enough() -> None:
    def clear(trial: Trial, name: str) -> bool:
        return len(trial.arms[name].runs_ms) == (2 if name == "a" else 3)

    trial = run_trial([telling("a", 1.0), telling("b", 2.0)], Plan(rounds=50, settled=clear))
    assert trial.ended == "enough"
    assert {name: len(arm.samples) for name, arm in trial.arms.items()} == {"a": 2, "b": 3}


def test_an_arm_is_spared_by_what_others_told_in_the_same_round() -> None:
    def spared(trial: Trial, name: str) -> bool:
        return name == "b" and bool(trial.arms["a"].samples)

    trial = run_trial([telling("a", 1.0), telling("b", 2.0)], Plan(rounds=2, settled=spared))
    assert len(trial.arms["a"].runs_ms) == 2 and not trial.arms["b"].samples


def test_nothing_a_process_started_outlives_it(tmp_path: Path) -> None:
    """A loader worker whose parent crashed."""
    note = tmp_path / "pid"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {FOREVER!r}])
open({str(note)!r}, "w").write(str(child.pid))
raise SystemExit(1)
"""
    run_trial([arm("a", code)], Plan(rounds=1))
    assert gone(int(note.read_text()))


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_child() -> None:
    pids: list[int] = []

    def interrupt_the_second(name: str, _: Sample) -> None:
        if name == "good":
            threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()

    def started(arm: Arm, env: object, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(arm.argv, stdout=stdout, stderr=stderr, start_new_session=True)
        pids.append(process.pid)
        return process

    before = signal.getsignal(signal.SIGINT)
    plan = Plan(tell=interrupt_the_second, start=started)
    trial = run_trial([telling("good", 2.0), arm("slow", FOREVER)], plan)
    assert trial.ended == "interrupted"
    assert trial.arms["good"].runs_ms == [2.0]
    assert trial.arms["slow"].samples == []
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_runner_that_is_told_to_end_takes_its_processes_along(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"import os; open({str(note)!r}, 'w').write(str(os.getpid()) + ' '); {FOREVER}"
    code = f"""
import sys
from findwall.trial.arms_in_turn import Arm, run_trial
run_trial([Arm("a", (sys.executable, "-S", "-c", {child!r}))])
"""
    runner = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 10
    while not (note.exists() and note.read_text().endswith(" ")) and time.monotonic() < until:
        time.sleep(0.01)
    runner.terminate()
    assert runner.wait(10) == -signal.SIGTERM
    assert gone(int(note.read_text()))


def test_a_trial_runs_in_a_thread() -> None:
    """Where no signal can be caught."""
    found: list[Trial] = []
    thread = threading.Thread(target=lambda: found.append(run_trial([telling("a", 1.0)], Plan(rounds=1))))
    thread.start()
    thread.join(10)
    assert found[0].arms["a"].runs_ms == [1.0]


READS = """
import os, sys
from findwall.trial.process_groups import is_piped_to
from findwall.trial.arms_in_turn import Arm, Plan, run_trial

job = "import sys; print('mean step ms', float(sys.stdin.read() or 1))"
trial = run_trial([Arm("a", (sys.executable, "-c", job))], Plan(rounds=2))
print(trial.arms["a"].runs_ms, is_piped_to(), os.read(0, 9))
"""


def test_every_process_reads_the_file_that_is_standard_input(tmp_path: Path) -> None:
    """From where it stands, which is left as it is."""
    (tmp_path / "in").write_text("7\n8\n")
    with open(tmp_path / "in", "rb", buffering=0) as file:
        file.read(2)
        said = subprocess.run([sys.executable, "-c", READS], stdin=file, capture_output=True, timeout=60)
    assert said.stdout == b"[8.0, 8.0] False b'8\\n'\n"


def test_a_pipe_is_empty_for_all_and_that_is_known() -> None:
    said = subprocess.run([sys.executable, "-c", READS], input=b"8\n", capture_output=True, timeout=60)
    assert said.stdout == b"[1.0, 1.0] True b'8\\n'\n"


def test_each_process_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """With what is in the folder that a person gave, and nothing that another process left."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_text("4")
    count = (
        "import os; print('mean step ms', open('data/rows').read() if not os.path.exists('ck') else 9);"
        "open('ck', 'w').close()"
    )
    arms = [replace(arm(name, count), cwd=str(tmp_path)) for name in ("plain", "fixed")]
    trial = run_trial(arms, Plan(rounds=2))
    assert [one.runs_ms for one in trial.arms.values()] == [[4.0, 4.0], [4.0, 4.0]]
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "rows"]
