"""Fixes made in a job's own process: each took effect on a real toy job, and left nothing behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from applied_jobs import run
from findwall.fixes import all_fixes

APPLIED = {name: fix for name, fix in all_fixes().items() if fix.apply is not None}
JOB = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(480, 16), torch.randn(480, 1))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
evaluation = DataLoader(data, 64)
for epoch in range(2):
    for x, y in DataLoader(data, 16, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(model(x), y).item() for x, y in evaluation)
print("evaluation workers", evaluation.num_workers)
print("fused", optimizer.param_groups[0]["fused"])
print("loss", loss.item() == loss.item())
"""


def test_workers_feed_the_training_and_not_the_evaluation(tmp_path: Path) -> None:
    found, said = run(tmp_path, "loader-workers=2", JOB)
    assert found["loader-workers"] == {"seen": "2 workers in a loader of 30 batches", "trouble": ""}
    assert "evaluation workers 0" in said


def test_several_fixes_are_made_together(tmp_path: Path) -> None:
    found, said = run(tmp_path, "fused-optimizer,loader-workers=2", JOB)
    assert found["fused-optimizer"]["seen"] == "fused=True in AdamW" and "fused True" in said
    assert "2 workers" in found["loader-workers"]["seen"]


def test_what_cannot_be_made_here_says_why_and_the_job_runs(tmp_path: Path) -> None:
    found, said = run(tmp_path, "tf32", JOB)
    assert found["tf32"]["seen"] == "" and "no GPU" in found["tf32"]["trouble"]
    assert "loss True" in said


@pytest.mark.parametrize(
    ("fixes", "hint"),
    [("remove-sync", "needs an edit"), ("tf23", "Did you mean tf32?"), ("tf32=4", "not a fix with a number")],
)
def test_a_fix_that_cannot_be_applied_is_refused_before_the_job_starts(
    tmp_path: Path, fixes: str, hint: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text("print('started')")
    command = [sys.executable, "-m", "findwall", "run", "--apply", fixes, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and hint in done.stderr and "started" not in done.stdout


TF32 = """
import torch

from findwall.fixes.precision.tf32 import apply
from findwall.apply.applying import Effect

there, torch.cuda.is_available = torch.cuda.is_available, lambda: True
effect = Effect()
apply(torch, effect)
torch.cuda.is_available = there
switch, model = torch.backends.cuda.matmul, torch.nn.Linear(2, 2)
print("made", switch.fp32_precision)
switch.fp32_precision = "ieee"
model(torch.ones(1, 2))
print("called", switch.fp32_precision, effect.told().seen, sorted({one.kind for one in effect.places}))
switch.fp32_precision = "ieee"
print("later", effect.told())
"""


def test_tf32_comes_back_where_a_job_turns_it_off_by_the_newer_switch(tmp_path: Path) -> None:
    """Reading the older one raises from then on. The switches are there without a GPU."""
    _, said = run(tmp_path, "", TF32)
    assert "made tf32" in said
    assert "called tf32 TF32 is on for matmuls and convolutions at the end ['script', 'undone']" in said
    assert "later AppliedFix(seen='', trouble='the job turns TF32 off itself')" in said
