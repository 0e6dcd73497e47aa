"""The zoo's labels are read by programs: they must be there and say what the docstring says."""

from __future__ import annotations

import ast
import importlib.util
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2] / "benchmarks"
WALLS = {"compute", "bandwidth", "overhead", "data", "comms"}


def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_jobs", ROOT / "record_jobs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDER = recorder()
NAMES = RECORDER.job_names()


@pytest.mark.parametrize("name", NAMES)
def test_label_is_what_the_docstring_says(name: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / "zoo" / f"{name}.py").read_text())) or ""
    wall, cause = RECORDER.declared(name)["WALLS"][0]
    assert wall in WALLS
    assert f"Truth: {wall} / {cause}." in text


def test_every_wall_stands_somewhere() -> None:
    assert {RECORDER.declared(name)["WALLS"][0][0] for name in NAMES} == WALLS


def test_a_fault_has_a_fix_that_proves_it() -> None:
    healthy = {"at-the-roof", "memory-roof"}
    for name in NAMES:
        facts = RECORDER.declared(name)
        assert facts["FIXES"] or not facts["make"] or facts["WALLS"][0][1] in healthy, name


def test_traces_are_packed_into_files_under_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RECORDER, "TAR_BYTES", 250)
    loose = tmp_path / "loose"
    loose.mkdir()
    for name in "abc":
        (loose / f"{name}.json.gz").write_bytes(b"x" * 100)
    RECORDER.pack(loose, tmp_path)
    held = []
    for path in sorted(tmp_path.glob("*.tar")):
        with tarfile.open(path) as archive:
            held.append(archive.getnames())
    assert held == [["a.json.gz", "b.json.gz"], ["c.json.gz"]]
    assert not list(loose.iterdir())
