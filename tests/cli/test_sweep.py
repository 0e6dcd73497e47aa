"""`findwall sweep`: real processes for what they tell, and drawn ones for what is made of their rates."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import warm
from captures import FIXTURES
from findwall import cli
from findwall.cli import sweep
from findwall.cli.sweep import _Sweeping, trainer_of, varied, with_argument
from findwall.errors import InputError
from findwall.model.arms import FedLoader, Peaks, Swept
from findwall.model.diagnosis import Wall, from_json
from findwall.report.markdown import to_markdown
from findwall.report.terminal import to_text
from findwall.trial.sweep_sizes import Ran
from jobs import HANG_S
from processes_left import begun, left
from recordings import document

JOB = """
import torch
from torch import nn
from torch.utils.data import DataLoader

rows = torch.ones(64, 8)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
loader = DataLoader(rows, 1, shuffle=True, drop_last=True)
evaluation = DataLoader(rows, 3)  # a size that no sweep tries
with torch.no_grad():
    assert len(next(iter(evaluation))) == 3
for epoch in range(10_000):
    for x in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 50 == 0:
        model.eval()
        with torch.no_grad():
            assert len(next(iter(evaluation))) == 3
        model.train()
"""
STEP = "        loss = model(x).square().mean()\n"
STARTS = """
import signal
import sys
from findwall.cli import main

sys.executable = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell began it with &
main(["sweep", "--steps", "5", "job.py"])
"""
BY_HAND = """
import argparse, torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
size = parser.parse_args().batch_size
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
for _ in range(10_000):
    loss = model(torch.ones(size, 8)).square().mean()
    if size > 4: raise MemoryError("no more")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a job.py is; jobs start with torch at hand."""
    monkeypatch.setattr(sys, "executable", warm.program(tmp_path_factory.mktemp("bin") / "python"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def swept(*words: str) -> Any:
    assert cli._run(["sweep", "--steps", "5", "--json", "out.json", *words]) == 0
    return json.loads(Path("out.json").read_text())["sweep"]


class Drawn:
    """In the place of processes: a step takes 30 ms up to 30 samples, and 1 ms a sample from there on."""

    def __init__(self, own: int | None = 16, look_s: float = 0.0) -> None:
        self.own, self.look_s, self.now = own, look_s, 0.0

    def monotonic(self) -> float:
        return self.now

    def sample(self, _sweeping: _Sweeping, size: int, folder: Path) -> Ran:
        size = size or self.own or 0
        folder.mkdir(parents=True, exist_ok=True)
        ms = float(max(30, size))
        fed = [FedLoader("rows", size, 10**6, 30, 30)] if self.own else []
        return Ran(Swept(ms, ms, ms, 30, True, 1.0, Peaks(), fed), 1.0)

    def look(self, sweeping: _Sweeping, size: int, _folder: Path) -> None:
        found = document(FIXTURES / "inference.json.gz")
        sweeping._looks[size] = replace(found, wall=Wall("data", "loader-starved"))
        self.now += self.look_s


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drawn:
    found = Drawn()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    monkeypatch.setattr(_Sweeping, "_sample", lambda *given: found.sample(*given))
    monkeypatch.setattr(_Sweeping, "_look", lambda *given: found.look(*given))
    monkeypatch.setattr(sweep, "time", found)
    return found


@pytest.mark.usefixtures("drawn")
def test_the_knee_and_the_plateau_are_told_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    found = swept("job.py")
    assert found["varied"] == "loader" and found["own"] == 16 and found["ended"] == "done"
    assert (found["knee"], found["smallest"], found["plateau"]) == (32, 32, [32, 128])
    assert found["wall"] == "data" and found["cause"] == "loader-starved"
    assert [one["batch_size"] for one in found["points"]] == [16, 32, 64, 128] and found["largest"] == 128
    said, told = capsys.readouterr()
    assert (
        said.startswith("1,000 samples per second is the most, with batches of 32") and "\n  >    16 " in said
    )
    assert "The knee is at 32: from there on" in said
    assert "findwall: running the job as it is" in told
    document = from_json(Path("out.json").read_bytes())
    (kept,) = Path("findwall-runs").glob("*-sweep-1")
    assert from_json((kept / "diagnosis.json").read_bytes()).sweep == document.sweep
    assert "The knee is at 32" in to_text(document)
    assert "| 32 |" in to_markdown(document) and "knee, smallest within 5 %" in to_markdown(document)


def test_a_job_whose_own_size_dies_goes_down_from_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its first step, after a look at the evaluation's batches, whose size stays."""
    dies = f"{STEP}        if len(x) > 2: raise MemoryError('no more')\n"
    (folder / "job.py").write_text(
        JOB.replace(STEP, dies).replace("DataLoader(rows, 1,", "DataLoader(rows, 4,")
    )
    found = swept("job.py")
    assert found["varied"] == "loader" and found["ended"] == "done"
    assert found["own"] == 4 and found["largest"] == 2
    points = {one["batch_size"]: one for one in found["points"]}
    assert {size: one["outcome"] for size, one in points.items()} == {
        1: "measured",
        2: "measured",
        4: "out-of-memory",
    }
    for size in (1, 2):
        one = points[size]
        assert one["samples_per_step"] == size and one["steps"] >= 5 and one["peak_gib"] > 0
        assert one["step_ms"]["low"] <= one["step_ms"]["high"] and one["samples_per_s"] > 0
    assert points[2]["predicted_gib"] is None and points[1]["predicted_gib"] > 0
    out, told = capsys.readouterr()
    assert "of those that were tried 2 is the largest that fits" in " ".join(out.split())
    assert "batches of 4, the job's own, run out of memory" in told
    (kept,) = Path("findwall-runs").glob("*-sweep-1")
    assert cli._run(["read", str(kept)]) == 0
    assert out.splitlines()[0] in capsys.readouterr().out
    assert 'id="sweep"' in (kept / "report.html").read_text()


def test_an_argument_is_varied_until_a_size_dies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing above it is started."""
    (folder / "job.py").write_text(BY_HAND)
    found = swept("--vary", "batch-size=4,8,16", "job.py", "--batch_size=2")
    assert found["varied"] == "argument" and found["argument"] == "batch-size" and found["own"] is None
    outcomes = {one["batch_size"]: one["outcome"] for one in found["points"]}
    assert outcomes == {4: "measured", 8: "out-of-memory", 16: "not-started"} and found["largest"] == 4
    assert found["points"][0]["samples_per_step"] == 4
    assert found["points"][1]["why"] == "ran out of memory: MemoryError: no more"
    assert "No data loader says how many" in " ".join(capsys.readouterr().out.split())


def test_a_job_without_a_loader_is_told_what_to_vary(
    drawn: Drawn, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn.own = None
    assert cli._run(["sweep", "--steps", "5", "job.py"]) == 2
    told = capsys.readouterr().err
    assert "no data loader feeds this job's steps" in told and "--vary batch-size=8,16,32" in told


def test_a_job_that_fails_is_told_in_its_own_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.py").write_text("import torch\nraise ValueError('no such data')\n")
    assert cli._run(["sweep", "job.py"]) == 1
    assert "ValueError: no such data" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """The second process says that it has begun, and waits."""
    waits = "        if len(x) > 1: open('begun', 'w').close(), time.sleep(600)\n"
    (tmp_path / "job.py").write_text("import time" + JOB.replace(STEP, waits + STEP))
    os.mkfifo(tmp_path / "begun")
    job = begun(tmp_path, "-c", STARTS, warm.program(tmp_path / "python"))
    with (tmp_path / "begun").open() as second:
        assert second.read() == ""
    job.send_signal(signal.SIGINT)
    _, told = job.communicate(timeout=HANG_S)
    assert job.returncode == -signal.SIGINT, told  # a shell says 130
    said = (tmp_path / "out").read_text()
    assert "no other size was measured" in said and "It was interrupted before every size was tried" in said
    assert left(tmp_path) == []


@pytest.mark.parametrize("words", [(), ("--vary", "batch-size=4,8")])
def test_ctrl_c_while_a_size_is_looked_at_keeps_it(
    words: tuple[str, ...], drawn: Drawn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two processes: the look, which takes seconds where a trace is long."""

    def look(sweeping: _Sweeping, size: int, folder: Path) -> None:
        drawn.look(sweeping, size, folder)
        signal.raise_signal(signal.SIGINT)

    drawn.own, drawn.look_s = 4, 3.0
    monkeypatch.setattr(cli, "_interrupted", lambda: 130)
    monkeypatch.setattr(_Sweeping, "_look", look)
    assert cli._run(["sweep", *words, "job.py"]) == 130
    said, told = capsys.readouterr()
    assert "133.3 samples per second with batches of 4; no other size was measured." in said
    assert "4: 133.3 samples per second (4 s)" in told  # with the look: the budget is of both


@pytest.mark.parametrize(
    ("fed", "said"),
    [
        ([], "no data loader feeds"),
        ([FedLoader("a", 8, 10, 1, 1), FedLoader("b", 56, 10, 1, 1)], "2 data loaders .* of 8 and 56"),
        ([FedLoader("a", None, 10, 1, 1, "own-sampler", "Buckets")], "from Buckets, a sampler"),
        ([FedLoader("a", None, 10, 1, 1, "no-batches")], "leaves batches to its dataset"),
        ([FedLoader("a", 8, 5, 1, 1)], "5 samples, fewer than a batch of 8"),
    ],
)
def test_what_cannot_be_varied_is_refused_in_one_line(fed: list[FedLoader], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        trainer_of(fed)
    assert "--vary batch-size=8,16,32" in str(refused.value.hint)


def test_the_arguments_of_a_job() -> None:
    assert varied("batch-size=32,8,16") == ("batch-size", (8, 16, 32)) and varied(None) == ("", ())
    assert varied("--bs=4") == ("bs", (4,))
    assert with_argument(["--lr", "1", "--batch-size", "8", "x"], "batch-size", 16)[2:] == (
        "--batch-size",
        "16",
        "x",
    )
    assert with_argument(["--batch_size=8"], "batch-size", 16) == ("--batch_size=16",)
    assert with_argument(["x"], "batch-size", 16) == ("x", "--batch-size", "16")
    for text in ("batch-size", "batch-size=", "batch-size=a,b", "batch-size=0,1", "=3"):
        with pytest.raises(InputError, match="names no sizes"):
            varied(text)
