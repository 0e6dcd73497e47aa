"""`findwall read` on exports: what a person sees, and what nobody must."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from findwall import cli

TOKEN = "planted-7f3a"


@pytest.fixture(scope="module")
def export(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = shared / "nsys" / "mfu_2gpu_before.sqlite.gz"
    if not packed.is_file():
        pytest.skip("../shared/nsys is not beside the project")
    path = tmp_path_factory.mktemp("export") / "mfu.sqlite"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    assert TOKEN.encode() in path.read_bytes()
    return path


def test_nothing_of_the_environment_is_printed_or_written(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, page, trace = (str(tmp_path / name) for name in ("a.json", "a.html", "a.trace.json"))
    given = ["read", str(export), "--gpu", "NVIDIA H200", "--top", "50", "--json", document]
    assert cli._run([*given, "--page", page, "--export-trace", trace]) == 0
    out, err = capsys.readouterr()
    assert "NVIDIA H200" in out
    for text in (out, err, *(Path(one).read_text() for one in (document, page, trace))):
        assert TOKEN not in text and "API_TOKEN" not in text
    assert json.loads(Path(document).read_text())["source"]["kind"] == "nsys"


@pytest.mark.parametrize(
    ("name", "hint"), [("A100", "NVIDIA A100"), ("H2000", "nvidia-smi"), ("", "nvidia-smi")]
)
def test_a_gpu_that_is_not_in_the_table(
    export: Path, capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    assert cli._run(["read", str(export), "--gpu", name]) == 2
    err = capsys.readouterr().err
    assert f"--gpu {name}".strip() in err and hint in err
