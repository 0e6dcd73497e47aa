"""docs/extending.md, followed: what it says to write is written into a copy of the source, and is found."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"In\s`(?P<path>[\w/.]+)`:\n|^```(?P<kind>python|diff)\n(?P<code>.*?)^```$", re.M | re.S)
KERNELS = """Start (ns),Duration (ns),CorrId,Device,Ctx,Strm,Name
1000000,2000000,1,NVIDIA H200 (0),1,7,"fused_dropout_kernel_vec<float, float, 1, 4>"
3500000,1000000,2,NVIDIA H200 (0),1,7,nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT
4500000,oops,3,NVIDIA H200 (0),1,7,nothing
"""


def blocks() -> Iterator[tuple[str, str, str]]:
    """The file that each block of the page is for, its kind, its text."""
    path = ""
    for found in BLOCK.finditer((ROOT / "docs" / "extending.md").read_text(encoding="utf-8")):
        path = found["path"] or path
        if found["kind"]:
            yield path, found["kind"], found["code"]


def edited(text: str, hunk: str) -> str:
    """With a hunk made where its lines are, wherever that is by now."""
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(before) == 1, f"the page edits lines that are not there:\n{before}"
    return text.replace(before, after)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests" / "causes").mkdir(parents=True)
    for path in [*(ROOT / "tests").glob("*.py"), ROOT / "tests" / "causes" / "test_catalogue.py"]:
        shutil.copy(path, root / path.relative_to(ROOT))
    for name, kind, text in blocks():
        path = root / name
        path.write_text(edited(path.read_text(encoding="utf-8"), text) if kind == "diff" else text)
    (root / "kernels.csv").write_text(KERNELS)
    return root


def followed(copy: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_page_has_all_three() -> None:
    written = [path for path, kind, _ in blocks() if kind == "python"]
    assert [Path(path).parent.name for path in written] == [
        "bandwidth",
        "causes",
        "less_work",
        "words",
        "readers",
    ]


def test_the_cause_and_its_fix_are_found_and_pass_what_every_cause_must(copy: Path) -> None:
    chosen = "random-numbers and not every_sentence"
    cases = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/causes/test_catalogue.py", "-k", chosen)
    said = followed(copy, *cases)
    assert "failed" not in said
    assert said.count(".") >= 8, said
    page = followed(copy, "-m", "findwall", "explain", "random-numbers")
    assert "Fixes: fewer-dropouts" in page


def test_the_fix_is_prescribed_for_a_job_that_needs_it(copy: Path) -> None:
    code = (
        "import sys; sys.path[:0] = ['tests', 'tests/causes']\n"
        "from test_random_numbers import clear, fires\n"
        "from findwall.fixes.prescribe import prescribe\n"
        "from findwall.causes.verdict import decide\n"
        "print(decide(fires()).cause)\n"
        "for facts in (fires(), clear()):\n"
        "    print([one.fixes for one in prescribe(facts, decide(facts).cause)[0]])\n"
    )
    cause, helped, not_helped = followed(copy, "-c", code).splitlines()
    assert cause == "random-numbers"
    assert "fewer-dropouts" in helped
    assert "fewer-dropouts" not in not_helped


def test_the_reader_reads_its_format_and_counts_what_it_cannot(copy: Path) -> None:
    document = json.loads(followed(copy, "-m", "findwall", "read", "kernels.csv", "--json", "-"))
    assert document["source"]["kind"] == "kernel-list"
    assert document["quality"]["damaged"] == 1
    assert {row["cause"]: row["ms"] for row in document["budget"]}["random-numbers"] == pytest.approx(2.0)
