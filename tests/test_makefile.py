"""`make demo` chooses a torch: the machine's, else one that is announced before it is fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

# Answers as the interpreter and the environments it makes would, and notes what it was asked.
PYTHON = """#!/bin/sh
echo "$(basename "$(dirname "$0")") $*" >>"$NOTED"
for last; do :; done
case "$*" in
*"import torch") exit "$MACHINE_LACKS_TORCH" ;;
*find_spec*) exit "$ENVIRONMENT_LACKS_TORCH" ;;
*torch.__file__*) echo /elsewhere ;;
*sysconfig*) dirname "$0" ;;
*"-m venv "*)
    mkdir -p "$last/bin"
    cp "$0" "$last/bin/python"
    printf '#!/bin/sh\\necho "findwall $*"\\n' >"$last/bin/findwall"
    chmod +x "$last/bin/findwall"
    ;;
*"pip install"*torch==*) exit "$FETCH_FAILS" ;;
esac
"""


def make_demo(
    folder: Path, machine: bool, environment: bool, fetch_fails: bool = False
) -> tuple[str, list[str]]:
    """What `make demo` prints, and what Python was asked meanwhile."""
    python, noted = folder / "machine" / "python", folder / "noted"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    answers = {
        "NOTED": str(noted),
        "MACHINE_LACKS_TORCH": str(int(not machine)),
        "ENVIRONMENT_LACKS_TORCH": str(int(not environment)),
        "FETCH_FAILS": str(int(fetch_fails)),
    }
    done = subprocess.run(
        ["make", "--no-print-directory", "demo", f"PYTHON={python}", f"VENV={folder / 'venv'}"],
        cwd=ROOT,
        env={**os.environ, **answers, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, noted.read_text().splitlines()


def fetched(asked: list[str]) -> list[str]:
    return [line for line in asked if "pip install" in line and "torch==" in line]


def test_the_machines_torch_is_used(tmp_path):
    shown, asked = make_demo(tmp_path, machine=True, environment=True)
    assert any("-m venv --system-site-packages" in line for line in asked)
    assert not fetched(asked)
    assert shown.endswith("findwall demo\n")


def test_torch_of_an_environment_that_python_is_in_is_handed_on(tmp_path):
    _, asked = make_demo(tmp_path, machine=True, environment=False)
    assert any("torch.__file__" in line for line in asked)
    assert (tmp_path / "venv" / "bin" / "machine-torch.pth").read_text() == "/elsewhere\n"


def test_a_download_is_announced_with_its_size(tmp_path):
    shown, asked = make_demo(tmp_path, machine=False, environment=False)
    assert not any("--system-site-packages" in line for line in asked)
    [line] = fetched(asked)
    pinned = next(part for part in line.split() if part.startswith("torch=="))
    assert f'"{pinned}"' in (ROOT / "pyproject.toml").read_text()
    assert "/whl/cpu" in line
    announced, ran = shown.index("about 200 MB"), shown.index("findwall demo")
    assert announced < ran


def test_without_a_network_the_demo_still_runs(tmp_path):
    shown, _ = make_demo(tmp_path, machine=False, environment=False, fetch_fails=True)
    assert "could not be fetched" in shown
    assert shown.endswith("findwall demo\n")
