from __future__ import annotations

from importlib import resources

import pytest

from findwall import cli

BUNDLED = resources.files("findwall") / "demo" / "trace.json.gz"


@pytest.mark.skipif(not BUNDLED.is_file(), reason="no trace is bundled yet")
def test_the_demo_names_a_wall(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["demo"]) == 0
    assert "THE WALL" in capsys.readouterr().out


@pytest.mark.skipif(BUNDLED.is_file(), reason="a trace is bundled")
def test_a_missing_trace_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("findwall.api")
    assert cli._run(["demo"]) == 1
    assert "demo trace is missing" in capsys.readouterr().err
