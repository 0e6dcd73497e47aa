"""Is the fix that its author would make the first one named?

    findwall run --stop --json DOCUMENTS/JOB.json ../shared/jobs/JOB.py --steps 400   on a GPU, for every job
    python benchmarks/advice.py DOCUMENTS [--jobs FOLDER] [--out FILE]               what the judge says

`../shared/tools/judge.py advice` holds the documents against `truth.json` of the jobs. What is kept: the
judge's line of each job and its count, and of each document its verdict and first fixes with their figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared"
FIXES_KEPT = 3


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """What a person would read first."""
    said = document["prescriptions"][:FIXES_KEPT]
    first = [{"fixes": one["fixes"], "step_ms": one.get("step_ms")} for one in said]
    wall = document["wall"]
    return {"wall": wall["wall"], "cause": wall["cause"], "step_ms": document["step"]["ms"], "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--jobs", type=Path, default=SHARED / "jobs")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    judge = [str(SHARED / "tools" / "judge.py"), "advice", str(asked.jobs), str(asked.documents)]
    done = subprocess.run([sys.executable, *judge], capture_output=True, text=True, check=False)
    print(done.stdout.strip())
    if asked.out is not None:
        paths = sorted(asked.documents.glob("*.json"))
        documents = {path.stem: json.loads(path.read_text()) for path in paths}
        found = {
            "date": time.strftime("%Y-%m-%d"),
            "gpu": sorted({str(one["machine"]["device"]) for one in documents.values()}),
            "judge": done.stdout.strip().splitlines(),
            "documents": {name: kept(one) for name, one in documents.items()},
        }
        asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
