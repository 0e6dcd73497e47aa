"""`findwall try`: a job that waits for its loader gets workers, in real processes, with the same losses.

What a look at the job says is given here: a diagnosis takes longest, and has tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import warm
from captures import FIXTURES
from findwall import api, cli
from findwall.cli.jobs import looking, screening, trying, what_to_try
from findwall.cli.jobs.launchers import launch_of
from findwall.cli.jobs.looking import look_at
from findwall.cli.run import chosen
from findwall.errors import FindwallError
from findwall.examine.traced_document import diagnose_device
from findwall.machine import ceilings
from findwall.machine.ceilings import CeilingsReport, cached_report, store
from findwall.machine.ceilings import numpy_cores as cores
from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import ArmReport
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis, Prescription
from findwall.model.machine import Ceilings
from findwall.report.words.documents import worded
from findwall.trial.arms_in_turn import (
    Arm,
    Failure,
    Outcome,
    Plan,
    Said,
    Sample,
    Trial,
    run_trial,
    step_in_report,
)
from fixes.drawn import on_cores_without_floor
from processes_left import begun, left

JOB = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        time.sleep(0.006)  # far more than a busy machine varies by
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return x, x.sum()

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Slow(), 8, shuffle=True):
    loss = nn.functional.mse_loss(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LOADER = "DataLoader(Slow(), 8, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4)"


RANKS = (
    JOB.replace(
        "model = nn.Linear(8, 1)",
        """torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))""",
    )
    .replace("1600", "9600")
    .replace(
        "DataLoader(Slow(), 8, shuffle=True)",
        "DataLoader(Slow(), 8, sampler=torch.utils.data.distributed.DistributedSampler(Slow()))",
    )
    + """
    if rank == 0:
        torch.cuda.empty_cache()
raise SystemExit("it was not stopped in time")
"""
)


def prescribing(said: dict[str, str]) -> Diagnosis:
    """What a look at the job says, with these fixes and how to make each."""
    known = Range(4.0, 5.0, 6.0)
    prescribed = [
        Prescription([fix], ["loader-starved"], known, known, "safe", how) for fix, how in said.items()
    ]
    document = (FIXTURES / "documents" / "full.json").read_bytes()
    return replace(msgspec.json.decode(document, type=Diagnosis), prescriptions=prescribed)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job.py in the working folder, for what never runs it."""
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Workers are prescribed, and a fix that needs an edit; which stacks were looked at."""
    how = {"lighter-samples": "Edit it.", "loader-workers": "Use `DataLoader(…, num_workers=2)`."}
    found = prescribing(how)
    found.prescriptions[-1].parameters = {"workers": 2, "prefetch": 4}
    stacks: list[tuple[str, ...]] = []

    def look(_job: object, stack: tuple[str, ...], writes: list[str], _left_s: float = 0.0) -> Diagnosis:
        stacks.append(stack)
        writes[:] = [str(Path("log.txt").absolute())]
        return found

    monkeypatch.setattr(trying, "_diagnosis", look)
    return stacks


def test_a_starved_job_gets_its_workers(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    looked: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "executable", warm.program(tmp_path_factory.mktemp("bin") / "python"))
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB)
    words = ["--repeat", "2", "--steps", "20", "--json", "out.json", "--write-patch", "it.patch"]
    assert cli._run(["try", *words, "job.py"]) == 0
    (trial,) = json.loads(Path("out.json").read_text())["trials"]
    assert trial["fix"] == "loader-workers=2" and trial["predicted"]["mid"] == 5.0
    assert trial["verdict"] == "faster" and trial["kept"] and trial["speedup"]["mid"] > 1.3
    assert trial["losses"] == "same" and trial["why"].startswith("2 workers in a loader of 200 batches")
    said, told = capsys.readouterr()
    assert "each trial writes log.txt again: --sandbox-dir DIR runs each" in told
    assert "times faster" in said and "findwall run --apply loader-workers=2 job.py" in said
    assert "What only you can change, on top of that:\n  - lighter-samples, about 5.00 ms" in said
    assert looked == [(), ("loader-workers=2",)]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["it.patch", "job.py", "out.json"] and Path("job.py").read_text() == JOB
    added = [line for line in Path("it.patch").read_text().splitlines() if line.startswith("+for")]
    assert added == [f"+for x, y in {LOADER}:"] and added[0] in said


PARSED = (
    JOB.replace("import time, torch", "import argparse, time, torch")
    .replace(
        "model =",
        """parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--num-workers", type=int, default=0, help="workers of the data loader")
parser.add_argument("--precision", action="store_true", help="report precision and recall")
args = parser.parse_args()
model =""",
        1,
    )
    .replace("DataLoader(Slow(), 8, shuffle=True)", "DataLoader(Slow(), 8, num_workers=args.num_workers)")
    .replace("1600", "8000")  # more than it ever needs: a busy machine settles late
    .replace("0.006", "0.0005")
)


def test_a_switch_of_the_script_is_proven_and_printed(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All of it real but the last look and how long steps took: the first look sees the parser, and the
    workers of an arm with the switch are counted."""
    look = trying._diagnosis

    def told(said: Said) -> float | None:
        """By how many workers fed it: on a busy machine two may give nothing."""
        if step_in_report(said) is None:
            return None
        report = msgspec.json.decode(said.report.read_bytes(), type=ArmReport)
        return 10.0 if report.applied.fixes else 20.0

    def first(job: trying.Job, stack: tuple[str, ...], writes: list[str], left_s: float = 0.0) -> Diagnosis:
        if stack:
            raise FindwallError("It was not looked at again.")
        return look(job, stack, writes, left_s)

    monkeypatch.setattr(trying, "_diagnosis", first)
    monkeypatch.setattr(trying, "step_in_report", told)
    monkeypatch.setattr(sys, "executable", warm.program(tmp_path_factory.mktemp("bin") / "python"))
    monkeypatch.setattr(trying, "lacks_ceilings", lambda _seen: False)
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(PARSED)
    words = ["--repeat", "2", "--steps", "10", "--json", "out.json", "--fixes", "loader-workers=2"]
    assert cli._run(["try", *words, "job.py", "--num-workers", "0"]) == 0
    (trial,) = json.loads(Path("out.json").read_text())["trials"]
    assert (trial["fix"], trial["switches"]) == ("loader-workers=2", {"loader-workers=2": "--num-workers 2"})
    assert trial["verdict"] == "faster" and trial["kept"] and trial["losses"] == "same"
    assert "2 workers in a loader of 1000 batches" in trial["why"]
    said, told = capsys.readouterr()
    assert "use the script's own switch:\n    python job.py --num-workers 2\n" in said
    assert "trying loader-workers=2 by --num-workers 2 beside the plain job" in told and "@@" not in said


def test_a_module_is_found_from_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    both = os.pathsep.join((str(tmp_path), "/elsewhere"))
    assert trying.Job("pkg.train", is_module=True, cwd="box").env == {"PYTHONPATH": both}
    assert trying.Job("pkg.train", is_module=True).env == trying.Job("train.py", cwd="box").env == {}


def test_what_a_person_names_is_tried_whatever_is_prescribed() -> None:
    seen = prescribing({"loader-workers": "Use 8 workers: 4 cores are idle.", "tf32": ""})
    only = trying.to_try("loader-workers=3,pin-memory,remove-sync")
    found = what_to_try.view_of(seen, True, only).candidates
    assert [one.fixes for one in found] == [("loader-workers=3",), ("pin-memory",), ("remove-sync",)]
    assert [one.stands_in for one in found] == [False, False, True]
    assert found[0].predicted.mid is not None and found[1].predicted.mid is None
    lost = replace(seen, prescriptions=[], wall=replace(seen.wall, wall=None, cause=None))
    assert [one.fixes for one in what_to_try.view_of(lost, True, ("tf32",)).candidates] == [("tf32",)]
    assert what_to_try.view_of(lost, False, ("tf32",)).candidates == []


@pytest.mark.usefixtures("script")
def test_what_is_worth_a_trial_without_a_wall_is_tried_with_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wait for the loader that was timed, beside work of which nobody knows how fast it could be."""
    waiting, alone = on_cores_without_floor(), on_cores_without_floor(loader_s=0.0)
    for facts, told in ((waiting, "loader-workers=2"), (alone, "nothing: no wall was found. 100 % of the")):
        found = worded(diagnose_device(facts.run, [facts]))
        monkeypatch.setattr(trying, "_diagnosis", lambda *_, found=found: found)
        assert cli._run(["try", "--dry-run", "job.py"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "wall: no wall that is known" and said[1].startswith(f"would try {told}")
        assert len(said) == 2 and "`findwall run`" not in said[1]
    (one,) = what_to_try.view_of(diagnose_device(waiting.run, [waiting])).candidates
    assert one.exact and one.redraws and one.predicted.mid is None and one.predicted.low is not None


def test_what_is_made_where_a_fix_fails_is_another_way_to_the_same() -> None:
    found = what_to_try.view_of(prescribing({"torch-compile": "", "bf16-autocast": ""})).candidates
    assert [one.fixes for one in found] == [("torch-compile",), ("bf16-autocast",), ("compile-blocks",)]
    assert found[-1].predicted == found[0].predicted and not found[-1].exact
    assert what_to_try.rivals(("bf16-autocast", "torch-compile"), "compile-blocks") == ("torch-compile",)


def test_a_look_that_fails_says_what_findwall_said(tmp_path: Path) -> None:
    code = "import sys; sys.exit('findwall: no module named pkg.\\n  findwall run -m MODULE')"
    with pytest.raises(FindwallError, match=r"\(exit code 1\): no module named pkg\."):
        look_at([sys.executable, "-c", code], tmp_path, tmp_path / "none.json", None, {})


def test_a_look_that_had_no_time_asks_for_more_and_blames_nothing(tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(FindwallError, match=r"too short for another look .*--budget") as told:
        look_at(waits, tmp_path, tmp_path / "none.json", None, {}, left_s=1.0)
    assert "findwall run" not in str(told.value)


@pytest.mark.usefixtures("script")
def test_a_job_with_nothing_to_gain_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trying, "_diagnosis", lambda *_: prescribing({"lighter-samples": "Edit it."}))
    assert cli._run(["try", "job.py"]) == 0
    said, told = capsys.readouterr()
    assert "no fix that is prescribed for it can be made without an edit" in " ".join(said.split())
    assert "What only you can change:\n  - lighter-samples, about 5.00 ms (4.00–6.00 ms): Edit it." in said
    assert "each trial writes" not in told


def test_ctrl_c_in_a_look_leaves_nothing_not_even_ranks(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        RANKS.replace("    loss =", "    open('begun', 'w').close()\n    loss =")
    )
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    job = begun(tmp_path, "-m", "findwall", "try", *launcher, "job.py")
    while not (tmp_path / "begun").exists():
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    _, told = job.communicate(timeout=60)
    assert job.returncode == -signal.SIGINT  # a shell says 130
    assert "findwall: interrupted before anything was measured\n" in told
    assert left(tmp_path) == []


# The first look is given, and so are the trials; the second look is never done.
DRIVER = """
import signal
import time
from pathlib import Path
import msgspec
from findwall.cli import main
from findwall.cli.jobs import trying
from findwall.model.applied import Applied, AppliedFix
from findwall.model.arms import ArmReport
from findwall.model.diagnosis import Diagnosis
from findwall.trial.arms_in_turn import Outcome, Sample, Trial

def look(job, stack, writes, left_s):
    if stack:
        print("looking again", flush=True)
        time.sleep(600)
    return msgspec.json.decode(Path("look.json").read_bytes(), type=Diagnosis)

def measured(arms, plan):
    trial = Trial({arm.name: Outcome(arm.name) for arm in arms})
    for arm in arms:
        fixed = "freeze-gc" in arm.argv
        ms, seen = (5.0, {"freeze-gc": AppliedFix("froze 9 objects")}) if fixed else (20.0, {})
        report = ArmReport(ms, 20, [3.0, 2.0, 1.0], applied=Applied(seen))
        trial.arms[arm.name].samples += [Sample(turn, 1.0, ms, report=report) for turn in range(3)]
    return trial

trying._diagnosis, trying.run_trial = look, measured
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell began it with &
main(["try", "--repeat", "2", "--steps", "5", "job.py"])
"""


def test_ctrl_c_keeps_what_was_proven(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("")
    (tmp_path / "look.json").write_bytes(msgspec.json.encode(prescribing({"freeze-gc": "Do it."})))
    job = begun(tmp_path, "-c", DRIVER)
    while "looking again" not in (tmp_path / "out").read_text():
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    assert job.returncode == -signal.SIGINT
    said = (tmp_path / "out").read_text()
    assert "times faster" in said and re.search(r"freeze-gc .* faster, kept\n", said)
    assert "interrupted." in said
    assert "findwall run --apply freeze-gc job.py" in said and left(tmp_path) == []


def test_a_stack_takes_as_long_as_what_was_run_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trying._Trying(trying.Job("job.py", budget_s=1000.0), lambda _text: None)
    monkeypatch.setattr(trying._Trying, "spent_s", 0.0)
    one._look_s = 40.0
    assert one.spare([(), ("bf16-autocast",)]) == 1000.0 - 2 * 20.0  # by the look alone
    one._took = {(): [10.0, 12.0], ("torch-compile",): [50.0, 30.0], ("loader-workers=2",): [14.0]}
    assert one.spare([()]) == 1000.0 - 11.0
    assert one.spare([("bf16-autocast",)]) == 1000.0 - 11.0
    assert one.spare([("bf16-autocast", "torch-compile")]) == 1000.0 - 40.0
    assert one.spare([("reduce-overhead",)]) == 1000.0 - 40.0  # another way to compile
    assert one.spare([("loader-workers=4",)]) == 1000.0 - 14.0


def test_what_compiles_takes_that_longer_and_what_was_given_up_longer_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = trying._Trying(trying.Job("job.py", budget_s=1000.0), lambda _text: None)
    monkeypatch.setattr(trying._Trying, "spent_s", 0.0)
    one._look_s = 40.0
    assert one.spare([("sdpa", "torch-compile by --compile 1")]) == 1000.0 - 20.0 - screening.COMPILED_S
    one._screenings.compiles_s = 38.0  # as a screening saw it
    assert one.spare([("reduce-overhead",)]) == 1000.0 - 20.0 - 38.0
    late = Failure("timed-out", "took more than 61 s")
    one._note_time(("sdpa",), Sample(0, 15.0, 100.0))
    one._note_time(("sdpa", "torch-compile"), Sample(1, 61.0, failure=late))
    one._note_time(("tf32", "torch-compile"), Sample(2, 31.0, failure=late))
    assert one.spare([("bf16-autocast", "reduce-overhead")]) == 1000.0 - 61.0
    assert one.spare([("bf16-autocast", "sdpa")]) == 1000.0 - 15.0


def test_what_is_done_next_is_told_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    one = trying._Trying(trying.Job("job.py", budget_s=90.0), said.append)
    monkeypatch.setattr(trying._Trying, "spent_s", 0.0)
    assert one._so_far() == ""
    one._steps = {(): 393.0, ("tf32",): 181.0}
    one._proven = ("tf32",)
    one._screenings._tell(one._screenings._so_far() + "screening sdpa")
    assert said == ["393 ms → 181 ms per step proven, 90 s left: screening sdpa"]


def of_cores(name: str) -> CeilingsReport:
    return CeilingsReport(
        Ceilings(name, "measured", "here", {"fp32": 1e11, "fp16": 1e11}, bandwidth=1e10), torch="2"
    )


@pytest.fixture
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trying.Job:
    """A job that was looked at on cores that nobody has measured, which are this machine's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cores, "core_name", lambda: "Some CPU, 2 cores")
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "runs" / "late_rank", folder)
    monkeypatch.setattr(trying, "_diagnosis", lambda *_: api.look([str(folder)])[1].diagnosis)
    return trying.Job("job.py", folder=folder)


def test_a_cpu_that_nobody_measured_is_measured_once_and_the_look_read_again(
    unmeasured: trying.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def measured(_left_s: float) -> bool:
        told.append("measured")
        return store(of_cores("Some CPU, 2 cores")) is not None

    monkeypatch.setattr(trying, "measure_cores", measured)
    seen = trying.first_look(unmeasured, told.append)
    assert told == ["looking at the job", "measuring this CPU's ceilings, once: about 13 s", "measured"]
    assert (seen.machine.ceilings["source"], seen.machine.ceilings["fp32_tflops"]) == ("measured", 0.1)
    assert unmeasured.folder is not None
    kept = json.loads((unmeasured.folder / "diagnosis.json").read_text())
    assert kept["machine"]["ceilings"]["source"] == "measured"
    assert "measured" in (unmeasured.folder / "report.html").read_text()
    assert trying.first_look(unmeasured, told.append) == seen and told[3:] == ["looking at the job"]


def test_a_cpu_that_cannot_be_measured_is_told_and_the_first_look_stands(
    unmeasured: trying.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(trying, "measure_cores", lambda _left_s: False)
    seen = trying.first_look(unmeasured, told.append)
    assert seen.wall.cause == "straggler" and seen.machine.ceilings["source"] == "unknown"
    assert told[2:] == ["this CPU's ceilings could not be measured: `findwall ceilings` shows why"]
    monkeypatch.setattr(trying, "measure_cores", lambda _left_s: True)  # but nothing can be read
    monkeypatch.setattr(trying, "_diagnosis", lambda *_: seen)
    shutil.rmtree(str(unmeasured.folder))
    assert trying.first_look(unmeasured, told.append) == seen
    assert told[-1].startswith("what was measured could not be kept or read")


def test_a_cpu_is_not_measured_where_no_trial_could_follow_nor_for_other_cores(
    unmeasured: trying.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    trying.first_look(replace(unmeasured, budget_s=30.0), told.append)
    monkeypatch.setattr(cores, "core_name", lambda: "Some CPU, 1 cores")  # the job chose its own
    trying.first_look(unmeasured, told.append)
    assert told == ["looking at the job"] * 2


def test_a_cpu_is_measured_on_all_its_cores_and_kept_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command that a person has for it, whatever number of threads the job is given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    given: list[tuple[str | None, float]] = []

    def measured(device: str | None, budget_s: float, _shapes: object) -> CeilingsReport:
        given.append((device, budget_s))
        return of_cores(cores.core_name())

    class Begun:
        """In this process, with what the other one would be given."""

        def __init__(self, words: tuple[str, ...], env: dict[str, str], **_how: object) -> None:
            assert "OMP_NUM_THREADS" not in env and env["HOME"] == os.environ["HOME"]
            self.pid, self.code = os.getpid(), cli._run(list(words[3:]))

        def poll(self) -> int:
            return self.code

    monkeypatch.setattr(ceilings, "measure_ceilings", measured)
    monkeypatch.setattr(looking.subprocess, "Popen", Begun)
    monkeypatch.setattr(looking, "end", lambda *_: None)
    monkeypatch.setattr(looking, "overseen", lambda *_: contextlib.nullcontext())
    assert looking.measure_cores(60.0) and given == [("cpu", 30.0)]
    assert cached_report(cores.core_name()) is not None


MEASURES = """
import signal
import sys
from pathlib import Path
import msgspec
from findwall.cli import main
from findwall.cli.jobs import trying
from findwall.model.diagnosis import Diagnosis

trying._diagnosis = lambda *_: msgspec.json.decode(Path("look.json").read_bytes(), type=Diagnosis)
trying.lacks_ceilings = lambda _seen: True
sys.executable = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell began it with &
main(["try", "job.py"])
"""


def test_ctrl_c_while_the_cpu_is_measured_ends_that_as_it_ends_a_look(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("")
    (tmp_path / "look.json").write_bytes(msgspec.json.encode(prescribing({"freeze-gc": "Do it."})))
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\ntouch begun\nsleep 600\n")
    slow.chmod(0o755)
    job = begun(tmp_path, "-c", MEASURES, str(slow))
    while not (tmp_path / "begun").exists():
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    _, told = job.communicate(timeout=60)
    assert job.returncode == -signal.SIGINT and "measuring this CPU's ceilings" in told
    assert "interrupted before anything" not in told and left(tmp_path) == []  # the look was there


def test_every_rank_makes_the_fixes_and_the_first_tells_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them under torchrun; all end at the same step, before the job would."""
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(RANKS)
    words = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "job.py")
    launch = launch_of(words)
    job = trying.Job(launch.target, launcher=launch.launcher, steps=10)
    arms = [trying._arm(job, "ranks", ("loader-workers=1", "omp-threads", "keep-cache"))]
    plan = Plan(rounds=1, read=step_in_report)
    outcome = run_trial(arms, plan).arms["ranks"]
    if outcome.failures:  # torch's own trouble at exit: tests/agent/test_session.py tells of it
        outcome = run_trial(arms, plan).arms["ranks"]
    assert not outcome.failures
    (report,) = outcome.reports
    assert report.step_ms and report.steps == 10 and len(report.losses) >= 10
    fixes = report.applied.fixes
    assert fixes["loader-workers"].seen == "1 worker in a loader of 600 batches"
    assert fixes["keep-cache"].seen.startswith("in 1 of 2 ranks: skipped ")
    # torchrun gives each rank one thread by itself.
    assert fixes["omp-threads"].trouble == "in rank 0: torch has 1 threads here as it is"
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]


@pytest.mark.usefixtures("script")
def test_a_dry_run_says_what_would_be_tried(
    looked: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["try", "--dry-run", "job.py"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["would try loader-workers=2"]
    assert cli._run(["try", "--dry-run", "--fixes", "tf32", "job.py"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["would try tf32"]
    assert cli._run(["try", "--dry-run", "--no-numerics", "--fixes", "tf32", "job.py"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "would try nothing: tf32 may change the numbers, which --no-numerics leaves out"
    ]


@pytest.mark.usefixtures("script")
def test_an_edit_is_tried_by_its_stand_in_and_no_command_makes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = "job.py:7 item: keep the value on the device and read it every n steps."
    found = prescribing({"remove-sync": how, "lighter-samples": "Edit it."})
    monkeypatch.setattr(trying, "_diagnosis", lambda *_: found)
    commands: list[tuple[str, ...]] = []

    def measured(arms: list[Arm], _plan: Plan) -> Trial:
        commands.extend(tuple(arm.argv) for arm in arms)
        seen = Applied({"remove-sync": AppliedFix("a stand-in for the edit: 9 reads came late, at job.py:7")})
        trial = Trial({arm.name: Outcome(arm.name) for arm in arms})
        for arm in arms:
            ms, applied = (10.0, seen) if arm.name == "remove-sync" else (20.0, Applied())
            report = ArmReport(ms, 20, [3.0, 2.0, 1.0], applied=applied)
            trial.arms[arm.name].samples += [Sample(turn, 1.0, ms, report=report) for turn in range(3)]
        return trial

    monkeypatch.setattr(trying, "run_trial", measured)
    assert cli._run(["try", "--fixes", "remove-sync", "--json", "out.json", "job.py"]) == 0
    (trial,) = json.loads(Path("out.json").read_text())["trials"]
    assert (trial["fix"], trial["verdict"], trial["kept"]) == ("remove-sync", "faster", True)
    assert trial["why"].startswith("a stand-in for the edit: 9 reads came late, at job.py:7")
    assert [words for words in commands if "--stand-in" in words] == [commands[-1]]
    assert not any("--apply" in words for words in commands)
    said = " ".join(capsys.readouterr().out.split())
    assert "remove-sync (stand-in) 5.00 ms 10.0 ms" in said and "--apply" not in said
    assert "No command makes remove-sync" in said and how in said
    assert cli._run(["try", "--dry-run", "job.py"]) == 0
    assert "would try remove-sync (stand-in)\n" in capsys.readouterr().out


@pytest.mark.parametrize("fix", ["remove-sync", "pad-shapes"])
def test_a_stand_in_is_nothing_to_run_a_job_with(fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["run", "--apply", fix, "job.py"]) == 2
    assert f"{fix} cannot be made from outside: it needs an edit" in capsys.readouterr().err
    assert cli._run(["run", "--stand-in", "tf32", "job.py"]) == 2
    assert chosen("tf32").names == ["tf32"] and chosen("", fix).names == [fix] and chosen("").names == []
    assert chosen("loader-workers=2", fix).names == ["loader-workers", fix]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--budget", "soon"], "10m, 90s or 1h"),
        (["--fixes", "vectorise-loop"], "needs an edit"),
        (["--fixes", "nothing"], "There is no fix"),
        (["--write-patch", "job.py"], "no script is edited"),
    ],
)
def test_what_cannot_be_tried_is_said_at_once(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["try", *words, "job.py"]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothere.py"], "there is no script 'nothere.py'"),
        (["--json", "no/such/out.json", "job.py"], "its folder is not there"),
        (["--sandbox-dir", "job.py/inside", "job.py"], "cannot make job.py/inside"),
    ],
)
@pytest.mark.usefixtures("script")
def test_what_cannot_be_read_or_written_is_told_before_anything_runs(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["try", *words]) == 2
    said = capsys.readouterr().err
    assert told in said and "looking" not in said


@pytest.mark.usefixtures("script")
def test_findwall_that_is_switched_off_tries_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FINDWALL_DISABLE", "1")
    assert cli._run(["try", "job.py"]) == 2
    assert "FINDWALL_DISABLE" in capsys.readouterr().err


def test_a_script_that_does_not_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('the disk is full')")
    assert cli._run(["try", str(tmp_path / "broken.py")]) == 1
    assert "no diagnosis" in capsys.readouterr().err
