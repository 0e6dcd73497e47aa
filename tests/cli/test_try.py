"""`findwall try`: a job that waits for its loader gets workers, in real processes, with the same losses.

What a look at the job says is given here: a diagnosis takes longest, and has tests of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from captures import FIXTURES
from findwall import cli
from findwall.cli import trying
from findwall.model.diagnosis import Diagnosis, Prescription, Range

JOB = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1600

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

LOADER = "DataLoader(Slow(), 8, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4)"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Workers are prescribed, and a fix that needs an edit; which stacks were looked at."""
    document = (FIXTURES / "documents" / "full.json").read_bytes()
    known = Range(4.0, 5.0, 6.0)
    said = {"lighter-samples": "Edit it.", "loader-workers": "Use `DataLoader(…, num_workers=2)`."}
    prescribed = [
        Prescription([fix], ["loader-starved"], known, known, "safe", how) for fix, how in said.items()
    ]
    found = replace(msgspec.json.decode(document, type=Diagnosis), prescriptions=prescribed)
    stacks: list[tuple[str, ...]] = []

    def look(_job: object, stack: tuple[str, ...]) -> Diagnosis:
        stacks.append(stack)
        return found

    monkeypatch.setattr(trying, "_diagnosis", look)
    return stacks


def test_a_starved_job_gets_its_workers(
    tmp_path: Path,
    looked: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB)
    words = ["--repeat", "2", "--steps", "20", "--json", "out.json", "--write-patch", "it.patch"]
    assert cli._run(["try", *words, "job.py"]) == 0
    (trial,) = json.loads(Path("out.json").read_text())["trials"]
    assert trial["fix"] == "loader-workers=2" and trial["predicted"]["mid"] == 5.0
    assert trial["verdict"] == "faster" and trial["kept"] and trial["speedup"]["mid"] > 1.3
    assert trial["losses"] == "same" and trial["why"] == "2 workers in a loader of 200 batches"
    said = capsys.readouterr().out
    assert "times faster" in said and "findwall run --apply loader-workers=2 job.py" in said
    assert looked == [(), ("loader-workers=2",)]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["it.patch", "job.py", "out.json"] and Path("job.py").read_text() == JOB
    added = [line for line in Path("it.patch").read_text().splitlines() if line.startswith("+for")]
    assert added == [f"+for x, y in {LOADER}:"] and added[0] in said


def test_a_dry_run_says_what_would_be_tried(
    looked: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["try", "--dry-run", "job.py"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["would try loader-workers=2"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--budget", "soon"], "10m, 90s or 1h"),
        (["--fixes", "remove-sync"], "needs an edit"),
        (["--fixes", "nothing"], "There is no fix"),
        (["--write-patch", "job.py"], "no script is edited"),
    ],
)
def test_what_cannot_be_tried_is_said_at_once(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["try", *words, "job.py"]) == 2
    assert hint in capsys.readouterr().err


def test_a_script_that_does_not_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('the disk is full')")
    assert cli._run(["try", str(tmp_path / "broken.py")]) == 1
    assert "no diagnosis" in capsys.readouterr().err
