"""What a job is seen to write, in the process of a look at it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import warm
from findwall.cli.jobs.looking import deleted, read_back, warn, written
from findwall.model.arms import LOOK, WRITES_FILE

AWAY = ": --sandbox-dir DIR runs each in a folder of its own"
NAMED = ": the job names the place itself"
JOB = """
import os, shutil, tempfile, torch
from pathlib import Path

shutil.rmtree("old")
Path("log.txt").unlink(missing_ok=True)
Path("stale.txt").unlink()
Path("made").mkdir()
Path("made").mkdir(exist_ok=True)
os.makedirs("was/there", exist_ok=True)
with open("log.txt", "a") as log, open("job.py") as own, open(os.devnull, "w") as nowhere:
    log.write(own.read())
os.replace("log.txt", "moved.txt")
Path("moved.txt").read_text()
for name in ("state.json", "kept.json", "new.json"):
    text = Path(name).read_text() if Path(name).exists() else "{}"
    if name != "kept.json":
        Path(name).write_text(text)
Path("new.json").read_text()
torch.save({}, "made/model.pt")
torch.save({}, f=Path("made/named.pt"))
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
Path(os.environ["XDG_CACHE_HOME"], "cached").write_text("x")
Path("__pycache__").mkdir()
os.chdir("was")
os.close(os.open("here", os.O_CREAT | os.O_WRONLY))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
"""


def test_what_a_job_writes_is_seen_where_it_is_asked_for(tmp_path: Path) -> None:
    home, temporary, own, cache = (tmp_path / name for name in ("home", "temporary", "own", "cache"))
    for folder in (home / "was" / "there", temporary, own, cache):
        folder.mkdir(parents=True)
    (home / "job.py").write_text(JOB)
    (home / "old" / "deep").mkdir(parents=True)
    for name in ("stale.txt", "old/a", "old/deep/b", "state.json", "kept.json"):
        (home / name).write_text("x")
    environ = {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache), LOOK: str(own)}
    words = ["-m", "findwall", "run", "--no-trace", "--out", str(own / "run"), "job.py"]
    done = subprocess.run(
        warm.command(*words, env=environ), cwd=home, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    names = [
        "made",
        "log.txt",
        "moved.txt",
        "state.json",
        "new.json",
        "made/model.pt",
        "made/named.pt",
        "was/here",
    ]
    assert written(own / "run") == [str(home / name) for name in names]
    assert deleted(own / "run") == [str(home / name) for name in ("old", "stale.txt")]
    assert read_back(own / "run") == [str(home / "state.json")]


def test_without_a_look_nothing_is_written_about_it(tmp_path: Path) -> None:
    assert written(tmp_path) == []
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / WRITES_FILE).write_text(json.dumps(["/a"]))
    assert written(tmp_path) == ["/a"]


@pytest.mark.parametrize(
    ("paths", "folder", "told"),
    [
        ([], None, []),
        (["a"], None, [f"each trial writes a again{AWAY}"]),
        (["b", "b/c"], None, [f"each trial writes b/c again{AWAY}"]),
        (list("abcde"), None, [f"each trial writes a, b, c and 2 more again{AWAY}"]),
        (["sand/a"], "sand", []),
        (["/data/a"], "sand", ["each trial writes /data/a again, outside of sand" + NAMED]),
    ],
)
def test_a_person_is_told_before(
    paths: list[str], folder: str | None, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    warn([str(tmp_path / path) for path in paths], folder, said.append)
    assert said == told


def test_what_each_trial_deletes_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    warn([str(tmp_path / "out/a")], None, said.append, [str(tmp_path / "out")])
    warn([], "sand", said.append, [str(tmp_path / "sand/out")])
    assert said == [f"each trial deletes out and writes out/a again{AWAY}"]


def test_what_one_trial_writes_and_the_next_reads_is_told_before_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    checkpoint, log, old = (str(tmp_path / name) for name in ("ck.pt", "log", "old"))
    warn([checkpoint], None, said.append, passed_on=[checkpoint])
    warn([checkpoint, log], None, said.append, [old], [checkpoint])
    warn([checkpoint], "sand", said.append, passed_on=[checkpoint])
    warn([checkpoint], str(tmp_path), said.append, passed_on=[checkpoint])
    reads = "each trial reads ck.pt as the one before it left it"
    assert said == [
        f"{reads}{AWAY}",
        f"{reads}, deletes old and writes log again{AWAY}",
        f"{reads}, outside of sand{NAMED}",
    ]
