"""`findwall sweep`: real jobs, whose loader says how long a batch takes."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import warm
from captures import FIXTURES
from findwall import cli
from findwall.cli.sweep import _Sweeping, trainer_of, varied, with_argument
from findwall.errors import InputError
from findwall.model.arms import BatchLines, FedLoader, Peaks, Swept
from findwall.model.diagnosis import from_json
from findwall.report.markdown import to_markdown
from findwall.report.terminal import to_text
from findwall.trial.sweep_sizes import Ran
from processes_left import begun, left
from recordings import document

# From the end of a step to the next batch it takes 30 ms up to 30 samples, and 1 ms a sample from there on,
# however long the rows themselves take to make.
JOB = """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.ones(8) * index

ended = 0.0

def collate(rows):
    batch = torch.stack(rows)
    time.sleep(max(0.0, ended + max(0.03, 0.001 * len(rows)) - time.monotonic()))
    return batch

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
loader = DataLoader(Rows(), 16, shuffle=True, collate_fn=collate)
evaluation = DataLoader(Rows(), 5)
for epoch in range(1000):
    for number, x in enumerate(loader):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ended = time.monotonic()
        if number % 50 == 0:
            model.eval()
            with torch.no_grad():
                assert len(next(iter(evaluation))) == 5
            model.train()
"""
STARTS = """
import signal
import sys
from findwall.cli import main

sys.executable = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell began it with &
main(["sweep", "--steps", "5", "job.py"])
"""
BY_HAND = """
import argparse, time, torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
size = parser.parse_args().batch_size
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
while True:
    time.sleep(0.02)
    loss = model(torch.ones(size, 8)).square().mean()
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


@pytest.mark.usefixtures("folder")
def test_the_knee_is_found_and_the_job_s_evaluation_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = swept("job.py")
    assert found["varied"] == "loader" and found["own"] == 16 and found["ended"] == "done"
    assert found["knee"] == 32 and found["smallest"] in (32, 64)  # on a busy machine each step takes longer
    assert found["plateau"][0] == found["smallest"] and found["plateau"][1] >= 128
    assert found["wall"] == "data" and found["cause"] == "loader-starved"
    points = {one["batch_size"]: one for one in found["points"]}
    assert list(points)[:4] == [16, 32, 64, 128] and found["largest"] == max(points)
    for size, one in points.items():
        assert one["outcome"] == "measured" and one["samples_per_step"] == size and one["steps"] >= 5
        assert one["samples_per_s"] < 1000 * size / max(30, size)
        assert one["step_ms"]["low"] <= one["step_ms"]["mid"] <= one["step_ms"]["high"]
        if size > 16:
            assert one["predicted_gib"] == pytest.approx(one["peak_gib"], rel=0.03)
    said, told = capsys.readouterr()
    assert said.splitlines()[0].startswith("9") and "with batches of" in said
    assert "The knee is at 32: from there on" in said and "\n  >    16 " in said
    assert "findwall: running the job as it is" in told
    document = from_json(Path("out.json").read_bytes())
    (kept,) = Path("findwall-runs").glob("*-sweep-1")
    assert from_json((kept / "diagnosis.json").read_bytes()).sweep == document.sweep
    assert cli._run(["read", str(kept)]) == 0
    assert "The knee is at 32: from there on" in capsys.readouterr().out
    page = (kept / "report.html").read_text()
    assert "The knee is at 32: from there on" in page and 'id="sweep"' in page
    assert "The knee is at 32" in to_text(document)
    assert "| 32 |" in to_markdown(document) and "knee, smallest within 5 %" in to_markdown(document)


def test_a_size_that_dies_is_told_and_nothing_above_it_is_started(folder: Path) -> None:
    job = JOB.replace("    batch =", "    if len(rows) > 31: raise MemoryError('no more')\n    batch =")
    (folder / "job.py").write_text(job)
    found = swept("job.py")
    outcomes = {one["batch_size"]: one["outcome"] for one in found["points"]}
    assert outcomes[16] == "measured" and outcomes[32] == "out-of-memory" and max(outcomes) == 32
    assert found["points"][-1]["why"] == "ran out of memory: MemoryError: no more"
    assert found["largest"] == 16


def test_a_job_whose_own_size_dies_goes_down_from_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its first step, after a look at the evaluation's batches."""
    dies = "    loss = model(x).square().mean()\n        if len(x) > 12: raise MemoryError('no more')\n"
    job = JOB.replace("    loss = model(x).square().mean()\n", dies)
    look = "with torch.no_grad():\n    assert len([*zip(range(4), evaluation)]) == 4\nfor epoch in range"
    (folder / "job.py").write_text(job.replace("for epoch in range", look).replace("0.06", "0.002"))
    found = swept("job.py")
    outcomes = {one["batch_size"]: one["outcome"] for one in found["points"]}
    assert outcomes[16] == "out-of-memory" and outcomes[8] == "measured" and max(outcomes) == 16
    assert found["own"] == 16 and found["largest"] == 8
    out, told = capsys.readouterr()
    assert "of those that were tried 8 is the largest that fits" in " ".join(out.split())
    assert "batches of 16, the job's own, run out of memory" in told


def test_an_argument_of_a_job_without_a_loader(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.py").write_text(BY_HAND)
    found = swept("--vary", "batch-size=4,8", "job.py", "--batch_size=2")
    assert found["varied"] == "argument" and found["argument"] == "batch-size" and found["own"] is None
    rates = [one["samples_per_s"] for one in found["points"]]
    assert [one["batch_size"] for one in found["points"]] == [4, 8] and 1.5 < rates[1] / rates[0] < 2.5
    assert "No data loader says how many" in " ".join(capsys.readouterr().out.split())


def test_a_job_without_a_loader_is_told_what_to_vary(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.py").write_text(BY_HAND)
    assert cli._run(["sweep", "--steps", "5", "job.py"]) == 2
    told = capsys.readouterr().err
    assert "no data loader feeds this job's steps" in told and "--vary batch-size=8,16,32" in told


def test_a_job_that_fails_is_told_in_its_own_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.py").write_text("import torch\nraise ValueError('no such data')\n")
    assert cli._run(["sweep", "job.py"]) == 1
    assert "ValueError: no such data" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    job = begun(tmp_path, "-c", STARTS, warm.program(tmp_path / "python"))
    assert job.stderr is not None
    told = [next(job.stderr), next(job.stderr)]  # the job as it is, and what it gave
    time.sleep(0.5)  # in the next process, or between two
    assert job.poll() is None and "samples per second" in told[1], told
    job.send_signal(signal.SIGINT)
    _, more = job.communicate(timeout=60)
    assert job.returncode == -signal.SIGINT, more  # a shell says 130
    said = (tmp_path / "out").read_text()
    assert "no other size was measured" in said and "It was interrupted before every size was tried" in said
    assert left(tmp_path) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", [(), ("--vary", "batch-size=4,8")])
def test_ctrl_c_while_a_size_is_looked_at_keeps_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two processes: the look, which takes seconds where a trace is long."""
    swept = Swept(50.0, 50.0, 50.0, 30, True, 1.0, Peaks(), [FedLoader("rows", 4, 10**6, 30, 30)])

    def look(sweeping: _Sweeping, size: int, _folder: Path) -> BatchLines:
        sweeping._looks[size] = document(FIXTURES / "inference.json.gz")
        time.sleep(0.6)
        signal.raise_signal(signal.SIGINT)
        return BatchLines()

    monkeypatch.setattr(cli, "_interrupted", lambda: 130)
    monkeypatch.setattr(_Sweeping, "_sample", lambda *_: Ran(swept, 1.0))
    monkeypatch.setattr(_Sweeping, "_look", look)
    assert cli._run(["sweep", *words, "job.py"]) == 130
    said, told = capsys.readouterr()
    assert "80 samples per second with batches of 4; no other size was measured." in said
    took = re.search(r"4: 80 samples per second \((\d+) s\)", told)
    assert took is not None and int(took[1]) >= 2  # with the look: the budget is of both


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
