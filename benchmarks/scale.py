"""What reading many ranks costs: memory of the process tree, two processes against one, the reduction, and
the time beside PyPI's reader of folders of ranks.

    python benchmarks/scale.py [--ranks 64 1024] [--kernels 48] [--rival]

Bars: 250 MB at any number of ranks; two processes 1.7 times as fast as one; 5 s of reduction at 1,024 ranks;
five times as fast as the rival at 64 ranks, on the same files, one after the other, in one run. Traces are
planted (`planted_ranks.py`) and written as torch.profiler would have. `load_before` says how busy the machine
was: beyond 1 the seconds say little, and CPU seconds, of all processes together, are what may be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from findwall.model.summaries.rank_summary import encode
from findwall.ranks.compared_ranks import compare
from findwall.ranks.reduced.mapping import reduce_all
from ingest import RIVALS, ROOT, rival_python
from planted_ranks import plant
from process_tree import measure
from ranks import write_trace
from stamped import stamp

RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
TIMES = 3  # each; the shortest counts: whatever else the machine does only adds
_MAP = """
import sys
from pathlib import Path
from findwall.ranks.reduced.mapping import reduce_all
if __name__ == "__main__":
    found = list(reduce_all(sorted(Path(sys.argv[1]).iterdir()), int(sys.argv[2])))
    assert all(one.raw for one in found), found
"""


def write_ranks(folder: Path, ranks: int, kernels: int) -> int:
    """The traces of one job, and how many events they hold."""
    timelines, events = plant("slow-gpu", ranks, 1, kernels=kernels).timelines, 0
    while timelines:
        timeline = timelines.pop()
        write_trace(timeline, folder / f"rank{timeline.header.rank}.json.gz")
        events += len(timeline.events)
    return events


def shortest(command: list[str], times: int = TIMES) -> dict[str, Any]:
    runs = [measure(command) for _ in range(times)]
    assert all(run.exit_code == 0 for run in runs), runs[-1].output
    return {
        "seconds": round(min(run.seconds for run in runs), 2),
        "cpu_seconds": round(min(run.cpu_seconds for run in runs), 2),
        "runs": [round(run.seconds, 2) for run in runs],
        "peak_mb": round(max(run.peak_bytes for run in runs) / 1e6, 1),
        "said": runs[-1].output.strip().splitlines()[-1:] if "rivals" in " ".join(command) else [],
    }


def reduction(folder: Path) -> dict[str, Any]:
    found = reduce_all(sorted(folder.iterdir()), len(os.sched_getaffinity(0)))
    made = [summary for one in found if (summary := one.summary) is not None]
    begun = time.perf_counter()
    answer = compare(made).answer
    took = time.perf_counter() - begun
    first = answer.suspects[0] if answer.suspects else None
    return {
        "seconds": round(took, 2),
        "communications": len(made[0].messages),
        "largest_summary_bytes": max(len(encode(one)) for one in made),
        "named": f"{first.what} {first.name}" if first else None,
    }


def of_size(ranks: int, kernels: int, with_rival: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ranks"
        folder.mkdir()
        row: dict[str, Any] = {"ranks": ranks, "events": write_ranks(folder, ranks, kernels)}
        reader = [sys.executable, "-m", "findwall", "read", str(folder), "--json", "-"]
        row["read"] = shortest(reader)
        row["one_process"], row["two_processes"] = (
            shortest([sys.executable, "-c", _MAP, str(folder), count]) for count in ("1", "2")
        )
        row["two_over_one"] = round(row["one_process"]["seconds"] / row["two_processes"]["seconds"], 2)
        row["reduction"] = reduction(folder)
        if with_rival:
            driver = str(ROOT / "benchmarks" / "rivals" / "run_traceinsight_ranks.py")
            row["traceinsight"] = shortest([str(rival_python("traceinsight")), driver, str(folder)], 1)
            for clock in ("seconds", "cpu_seconds"):
                row[f"times_faster_{clock}"] = round(row["traceinsight"][clock] / row["read"][clock], 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64])
    parser.add_argument("--kernels", type=int, default=48, help="of a step on each rank")
    parser.add_argument("--rival", action="store_true", help="read the same files with traceinsight")
    asked = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}}
    kept |= {
        "load_before": os.getloadavg()[0],
        **stamp("cpu"),
        "cores": len(os.sched_getaffinity(0)),
        "numpy": version("numpy"),
    }
    kept["rival"] = RIVALS["traceinsight"][1][0]
    for ranks in asked.ranks:
        row = of_size(ranks, asked.kernels, asked.rival)
        kept["rows"][f"{ranks} ranks, {asked.kernels} kernels"] = row
        print(json.dumps(row, indent=1), flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
