"""The workflow for GitHub Actions: its shell lines do what they say, on a toy job."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

import warm
from jobs import HANG_S

WORKFLOW = Path(__file__).parents[1] / "examples" / "ci" / "findwall.yml"
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]  # as the runner starts it
# Ten milliseconds in the step, or four times as long; or as long before it, where the next batch is made.
JOB = """
    import time
    import torch

    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    class Batches(torch.utils.data.Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            time.sleep({making})
            return torch.ones(4, 8)

    for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
        loss = model(batch).square().mean()
        time.sleep({thinking})
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def steps() -> dict[str, str]:
    """The shell lines of every step by its name, read as plainly as they are written."""
    found: dict[str, str] = {}
    text = WORKFLOW.read_text(encoding="utf-8")
    for step in re.split(r"^ {6}- ", text.partition("    steps:\n")[2], flags=re.MULTILINE)[1:]:
        name = re.search(r"^name: (.+)$", step, re.MULTILINE)
        block = re.search(r"^ {8}run: \|\n((?: {10}.*\n|\n)+)", step, re.MULTILINE)
        line = re.search(r"^ {8}run: ([^|\n]+)$", step, re.MULTILINE)
        if name is not None and (block is not None or line is not None):
            found[name[1]] = textwrap.dedent(block[1]).strip() if block else line[1] if line else ""
    return found


class Runner:
    """A folder with a job in it, and the steps of the workflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "findwall"
        program.parent.mkdir()
        words = shlex.join(warm.command("-m", "findwall"))
        fewer = 'if [ "$1" = run ]; then shift; set -- run --wait 5 --steps 12 "$@"; fi'
        program.write_text(f'#!/bin/sh\n{fewer}\nexec {words} "$@"\n')
        program.chmod(0o755)
        self.summary = folder / "summary.md"

    def job(self, making: float, thinking: float) -> None:
        source = textwrap.dedent(JOB).format(making=making, thinking=thinking)
        (self.folder / "train.py").write_text(source)

    def step(self, name: str, **environ: str) -> subprocess.CompletedProcess[str]:
        self.summary.write_text("")
        given = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "JOB": "train.py",
            "RUNS": "1",
        }
        return subprocess.run(
            [*SHELL, steps()[name]],
            cwd=self.folder,
            env={**os.environ, **given, **environ},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )

    def clear(self) -> None:
        """The next run begins with a fresh checkout, and the baseline that was kept."""
        (self.folder / "findwall-runs").rename(self.folder / f"old-{len(list(self.folder.iterdir()))}")


def test_the_steps_gate_and_compare(tmp_path: Path) -> None:
    runner = Runner(tmp_path)

    runner.job(making=0.0, thinking=0.01)
    measured = runner.step("Measure")
    assert measured.returncode == 0, measured.stderr
    assert runner.step("Say what was found").returncode == 0
    assert runner.summary.read_text().startswith("### ")
    assert runner.step("Compare").returncode == 0
    assert "There is no baseline yet" in runner.summary.read_text()
    assert runner.step("Make it the baseline").returncode == 0
    assert [path.name for path in (tmp_path / "findwall-baseline").iterdir()] == ["1.json"]

    again = runner.step("Compare")
    assert again.returncode == 0
    assert runner.summary.read_text().startswith("### NO DIFFERENCE")

    runner.clear()
    runner.job(making=0.0, thinking=0.04)
    assert runner.step("Measure").returncode == 0
    slower = runner.step("Compare")
    assert slower.returncode == 3, slower.stderr
    assert runner.summary.read_text().startswith("### SLOWER: step ")
    assert "--fail-slower: the step changed by" in slower.stderr
    assert (tmp_path / "compared.html").is_file()

    runner.clear()
    runner.job(making=0.04, thinking=0.0)
    starved = runner.step("Measure")
    assert starved.returncode == 3, starved.stderr
    assert "--fail-wall data: the wall is data / loader-starved" in starved.stderr
    assert runner.step("Say what was found").returncode == 0
    assert "data / loader-starved" in runner.summary.read_text().replace("\\", "")


def test_every_step_with_a_shell_is_tried_or_installs() -> None:
    tried = {"Measure", "Say what was found", "Compare", "Make it the baseline"}
    assert set(steps()) == tried | {"Install"}


def test_it_is_a_workflow() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with pre-commit")
    found: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    (job,) = found["jobs"].values()
    shells = {step["name"]: step["run"].strip() for step in job["steps"] if "run" in step}
    assert shells == steps()
    assert all("uses" in step or "run" in step for step in job["steps"])
