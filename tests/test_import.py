"""A training job, and a person who only asks for help, pay for nothing they do not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "torch", "msgspec", "rich")


def loaded_by(code: str) -> set[str]:
    report = "import sys; sys.stderr.write(' '.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return {module.partition(".")[0] for module in run.stderr.split()}


def test_importing_findwall_loads_nothing_heavy() -> None:
    assert not loaded_by("import findwall") & {*HEAVY, "click"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], [], ["read", "--help"], ["explain", "--help"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"import findwall.cli as cli\nassert cli._run({arguments!r}) == 0"
    assert not loaded_by(code) & set(HEAVY)


def test_reading_a_small_trace_loads_only_what_it_needs() -> None:
    """Each of these takes as long to load as a small trace takes to be read."""
    path = str(Path(__file__).parent / "fixtures" / "inference.json.gz")
    loaded = loaded_by(f"import findwall.cli as cli\nassert cli._run(['read', {path!r}, '--json', '-']) == 0")
    assert not loaded & {"multiprocessing", "statistics", "torch", "rich"}
