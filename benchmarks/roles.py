"""Whether each op of a step is given the role that a person gave its line.

    python benchmarks/roles.py record FOLDER [JOB ...]    # runs the jobs under findwall, on the CPU
    python benchmarks/roles.py score FOLDER [JOB ...] [--out FILE]

`roles.json` has the lines of twelve jobs and what each is for, written down before any of them was scored.
While a job is observed, all lines that lead to an op are noted, not the innermost alone: a layer that teacher
and student share is told apart by who calls it. What counts is the time of outermost ops in the traced steps,
of each its median: on a busy machine one op that had to wait would be all there is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MS = 1e6


def marks_every_line() -> None:
    """Marks of lines say how the job came there: the innermost first."""
    from findwall.agent.tracing.line_marks import LineMarks, is_own
    from findwall.model.dataflow import LINE

    def mark(self: Any, frame: FrameType) -> None:
        lines, above = [], frame
        while above is not None:
            if is_own(above.f_code.co_filename) and above.f_code.co_filename != __file__:
                lines.append(str(above.f_lineno))
            above = above.f_back  # type: ignore[assignment]
        if lines != self._last and self._left > 0:
            self._last = lines
            self._left -= 1
            with self._range(LINE + "<".join(lines)):
                pass

    LineMarks._mark = mark  # type: ignore[method-assign]


def record(folder: Path, job: dict[str, Any]) -> None:
    """In a process of its own: torch has one observer."""
    out = folder / job["job"]
    command = [sys.executable, __file__, "inside", str(out), str(ROOT / job["file"]), *job["arguments"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    observed = json.loads((out / "rank0/measurement.json").read_text())["observed"] if out.exists() else None
    print(f"{job['job']:14} {observed or done.stderr[-500:]}", flush=True)


def inside(out: str, job: list[str]) -> None:
    from findwall.cli.run import command

    marks_every_line()
    command.main(["--stop", "--until", "lines", "--out", out, *job])


class Labels:
    """What a person said of the lines of a job."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._text = (ROOT / job["file"]).read_text().splitlines()
        self._labels = job["labels"]

    def lines(self, mark: str) -> list[str]:
        return [self._text[int(line) - 1].strip() for line in mark.split("<")]

    def role(self, mark: str, op: str) -> str | None:
        lines = self.lines(mark)
        for line in lines:
            for label in self._labels:
                asked = label.get("under", "")
                fits = label["words"] in line and any(asked in one for one in lines)
                if fits and op in label.get("ops", [op]):
                    return str(label["role"])
        return None


def ops_of(folder: Path, job: dict[str, Any]) -> Iterator[tuple[str, int, str | None, str | None, float]]:
    """Mark, row, role by hand, role as decided, ms: each outermost op of the traced steps."""
    from findwall.dataflow.joining import joined
    from findwall.dataflow.linking import in_backward
    from findwall.dataflow.roles import roles
    from findwall.examine import facts_of
    from findwall.model.dataflow import LINE, ROLES
    from findwall.readers import open_run

    facts = facts_of(open_run([folder / job["job"]]), None)[0]
    graph = joined(facts)
    if graph is None:
        return
    observed, parent = graph.flow.observed, facts.links.parent
    told, engine, labels = roles(graph.flow), in_backward(observed), Labels(job)
    outer = (graph.op >= 0) & ((parent < 0) | (graph.op[np.maximum(parent, 0)] < 0))
    events = facts.timeline.events
    rows = np.flatnonzero(outer)
    took = (events.end - events.start)[rows] / MS
    for op in np.unique(graph.op[rows]).tolist():
        name = observed.names[int(observed.name[op])]
        mark = observed.names[int(observed.line[op])].removeprefix(LINE) if observed.line[op] >= 0 else ""
        wanted = "backward" if engine[op] else labels.role(mark, name) if mark else None
        said = ROLES[told[op]] if told[op] >= 0 else None
        mine = took[graph.op[rows] == op]
        yield mark, op, wanted, said, float(np.median(mine)) * len(mine)


def scored(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    labels, names = Labels(job), Counter[tuple[str, str | None, str | None]]()
    right = whole = unlabelled = 0.0
    by_role: Counter[str] = Counter()
    for mark, _, wanted, said, ms in ops_of(folder, job):
        line = labels.lines(mark)[0][:90] if mark else ""
        if wanted is None:
            unlabelled += ms
            names[line, None, said] += ms  # type: ignore[assignment]
            continue
        whole += ms
        right += ms * (wanted == said)
        by_role[wanted] += ms  # type: ignore[assignment]
        if wanted != said:
            names[line, wanted, said] += ms  # type: ignore[assignment]
    wrong = [
        {"line": line, "by_hand": wanted, "decided": said, "share": round(ms / whole, 4)}
        for (line, wanted, said), ms in names.most_common()
        if whole and ms / whole > 0.001
    ]
    return {
        "right": round(right / whole, 4) if whole else None,
        "op_ms": round(whole, 3),
        "unlabelled_ms": round(unlabelled, 3),
        "roles": {role: round(ms / whole, 3) for role, ms in by_role.most_common()},
        "wrong": wrong,
    }


def main() -> None:
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["record", "score", "unlabelled"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    jobs = json.loads((HERE / "roles.json").read_text())["jobs"]
    rows = {}
    for job in jobs:
        if asked.only and job["job"] not in asked.only:
            continue
        if asked.what == "record":
            record(asked.folder, job)
            continue
        if asked.what == "unlabelled":
            ops = list(ops_of(asked.folder, job))
            missing = {mark for mark, _, wanted, _, _ in ops if wanted is None}
            print(f"{job['job']:14} {len(ops)} ops, without a label:", flush=True)
            for mark in sorted(missing):
                print("   ", Labels(job).lines(mark) if mark else "no line")
            continue
        found = rows[job["job"]] = scored(asked.folder, job)
        print(f"{job['job']:14} right {found['right']} of {found['op_ms']} ms", flush=True)
        for one in found["wrong"]:
            print(f"    {one['share']:.3f} {one['by_hand']} -> {one['decided']}: {one['line']}")
    if asked.what == "score":
        known = [one["right"] or 0.0 for one in rows.values()]
        print(f"mean of {len(known)} jobs: {np.mean(known):.4f}, worst {min(known):.4f}")
        if asked.out:
            asked.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
