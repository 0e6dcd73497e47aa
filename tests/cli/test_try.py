"""`findwall try` on a real job: the loader it waits for gets its workers, proven, with the same losses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from findwall import cli

JOB = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4800

    def __getitem__(self, index):
        time.sleep(0.002)
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


def test_a_starved_job_gets_its_workers(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "findwall", "try", "--repeat", "2", "--steps", "25"]
    command += ["--fixes", "loader-workers", "--json", "out.json", "job.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads((tmp_path / "out.json").read_text())["trials"]
    assert trial["verdict"] == "faster" and trial["kept"] and trial["speedup"]["mid"] > 1.4
    assert trial["losses"] == "same" and "workers in a loader of 600 batches" in trial["why"]
    assert "times faster" in done.stdout and "findwall run --apply loader-workers=" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.py", "out.json"]  # nothing is left


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--budget", "soon"], "10m, 90s or 1h"),
        (["--fixes", "remove-sync"], "needs an edit"),
        (["--fixes", "nothing"], "There is no fix"),
    ],
)
def test_what_cannot_be_tried_is_said_at_once(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["try", *words, "job.py"]) == 2
    assert hint in capsys.readouterr().err


def test_a_script_that_does_not_run_is_told_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('the disk is full')")
    assert cli._run(["try", str(tmp_path / "broken.py")]) == 1
    assert "no diagnosis" in capsys.readouterr().err
