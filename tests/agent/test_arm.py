"""What one process of a trial tells of itself."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import warm
from findwall.fixes import all_fixes
from findwall.model.arms import SINCE

JOB = """
import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
with torch.inference_mode():
    for step in range(4000):
        model(torch.randn(4, 8))
"""


DRAWS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, at):
        return torch.DRAW + at

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(Rows(), batch_size=4, num_workers=1)
for epoch in range(40):
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


def told(folder: Path, seed: str, *fixes: str) -> dict[str, Any]:
    report = folder / f"{seed}.json"
    words = ["-m", "findwall", "run", "--stop", "--steps", "5", "--wait", "2", *fixes, "job.py"]
    done = subprocess.run(
        warm.command(*words),  # each arm sets its own seed: nothing here hangs on a fresh interpreter
        cwd=folder,
        env={**os.environ, "FINDWALL_REPORT": str(report), "FINDWALL_SEED": seed},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_inference_tells_what_its_model_gave(tmp_path: Path) -> None:
    """A job that sets its own seed gets another one in an arm with another seed."""
    (tmp_path / "job.py").write_text(JOB)
    plain, again, other = (told(tmp_path, seed) for seed in ("0", "0", "1"))
    assert plain["losses"] == [] and len(plain["outputs"]) >= 5 and plain["outputs"] == again["outputs"]
    assert all(a != b for a, b in zip(plain["outputs"], other["outputs"], strict=False))


@pytest.mark.parametrize(("draw", "draws"), [("randn(8)", True), ("ones(8)", False)])
def test_other_workers_draw_other_numbers_and_that_is_told(tmp_path: Path, draw: str, draws: bool) -> None:
    """A dataset that draws none gives the very same losses, and is held to that."""
    (tmp_path / "job.py").write_text(DRAWS.replace("DRAW", draw))
    plain = told(tmp_path, "0")
    assert plain.get("draws", False) is draws and not plain.get("unseen", False)
    for fix in ("loader-workers=2", "persistent-workers"):
        fixed = told(tmp_path, "0", "--apply", fix)
        many = min(len(plain["losses"]), len(fixed["losses"]))
        assert many > 5 and (plain["losses"][:many] != fixed["losses"][:many]) is draws, fix
        assert plain["order"][0][:12] == fixed["order"][0][:12], fix
        assert all_fixes()[fix.partition("=")[0]].redraws, fix


RESUMES = """
import os, torch

here, model = "ck.pt", torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
if os.path.exists(here):
    model.load_state_dict(torch.load(here))
    import safetensors.torch
    safetensors.torch.load_file("own.pt")
open("job.py").close()
torch.save({}, "own.pt")
torch.load("own.pt")
for step in range(4000):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    if step == 2:
        torch.save(model.state_dict(), here)
"""


def test_what_an_earlier_process_of_the_trial_wrote_is_told_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what is older than the trial, and not what the process wrote itself."""
    (tmp_path / "job.py").write_text(RESUMES)
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "torch.py").write_text("def load_file(filename): ...\nsave_file = load_file")
    assert told(tmp_path, "0").get("read_back", []) == []
    monkeypatch.setenv(SINCE, str(time.time()))
    first, second = told(tmp_path, "0"), told(tmp_path, "0")
    assert first.get("read_back", []) == [] and second["read_back"] == ["ck.pt", "own.pt"]
    assert first["losses"][0] > second["losses"][0]
