"""Write the lists of names that a redacted page may show, into src/findwall/report/public_names/.

    python benchmarks/public_names.py

Ops are those that the installed torch itself registers; words of kernels are those of torch's op names and of
the kernels in the recordings of the tree, which are of public libraries.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "findwall" / "report" / "public_names"
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
SHORTEST = 3  # letters: shorter ones tell nothing


def _write(name: str, words: Iterable[str]) -> None:
    (TARGET / name).write_text(
        "\n".join(textwrap.wrap(" ".join(sorted(words)), 110, break_on_hyphens=False)) + "\n"
    )


def main() -> None:
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    _write("ops.txt", {name for name in names if not name.startswith(("_test::", "debug"))})
    listed = json.loads((ROOT / "benchmarks/golden/recordings.json").read_text())
    kernels: set[str] = set()
    for row in listed:
        if not row["drawn"]:
            document = json.loads((ROOT / f"benchmarks/golden/{row['name']}.json").read_text())
            kernels |= {kernel["name"] for kernel in document.get("kernels", ())}
    of_ops = {word for name in names for word in name.replace("::", "_").split("_")}
    found = {word.lower() for text in (*kernels, *of_ops) for word in WORD.findall(text)}
    _write("kernel_words.txt", {word for word in found if len(word) >= SHORTEST})


if __name__ == "__main__":
    main()
