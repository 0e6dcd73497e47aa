"""What one process of a trial tells of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

JOB = """
import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
with torch.inference_mode():
    for step in range(4000):
        model(torch.randn(4, 8))
"""


def told(folder: Path, seed: str) -> dict[str, list[float]]:
    report = folder / f"{seed}.json"
    done = subprocess.run(
        [sys.executable, "-m", "findwall", "run", "--stop", "--steps", "5", "--wait", "2", "job.py"],
        cwd=folder,
        env={**os.environ, "FINDWALL_REPORT": str(report), "FINDWALL_SEED": seed},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = json.loads(report.read_text())
    return found


def test_inference_tells_what_its_model_gave(tmp_path: Path) -> None:
    """A job that sets its own seed gets another one in an arm with another seed."""
    (tmp_path / "job.py").write_text(JOB)
    plain, again, other = (told(tmp_path, seed) for seed in ("0", "0", "1"))
    assert plain["losses"] == [] and len(plain["outputs"]) >= 5 and plain["outputs"] == again["outputs"]
    assert all(a != b for a, b in zip(plain["outputs"], other["outputs"], strict=False))
