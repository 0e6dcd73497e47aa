"""Whether the graph of a step is right: its links against those that were noted element by element.

    python benchmarks/dataflow.py [--out benchmarks/results/dataflow.json] JOB.py [-- ARGUMENTS]
    python benchmarks/dataflow.py --all FOLDER [-- ARGUMENTS]     every job of a folder, one process each

One iteration of the job is seen by torch's observer and by `dataflow_reference.py`, which puts a range around
each op that it sees, so that both speak of the same ones. Links are compared between the ops that torch
dispatches: precision is the share of the graph's links that the reference has, recall the share of the
reference's that the graph has.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WARM = 3  # optimizer steps, or calls of the model, before it is looked at
MARK = "DATAFLOW "


def observe(script: str, arguments: list[str]) -> None:
    """In the job's own process."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from dataflow_reference import Reference

    folder = tempfile.mkdtemp()
    seen = {"ends": 0, "depth": 0, "trains": False}
    observer, reference = torch.profiler.ExecutionTraceObserver(), Reference()
    path = f"{folder}/observed.json"

    def ended() -> None:
        seen["ends"] += 1
        if seen["ends"] == WARM:
            observer.register_callback(path)
            observer.start()
            reference.__enter__()
        elif seen["ends"] == WARM + 1:
            reference.__exit__(None, None, None)
            observer.stop()
            observer.unregister_callback()
            sys.stdout.write(MARK + json.dumps(compare(Path(path), reference.names, reference.edges)) + "\n")
            sys.stdout.flush()
            os._exit(0)

    def stepped(*_: Any) -> None:
        seen["trains"] = True
        ended()

    def entered(*_: Any) -> None:
        seen["depth"] += 1

    def left(module: Any, *_: Any) -> None:
        seen["depth"] -= 1
        if seen["depth"] == 0 and not seen["trains"] and not torch.is_grad_enabled():
            ended()

    register_optimizer_step_post_hook(stepped)
    torch.nn.modules.module.register_module_forward_pre_hook(entered)
    torch.nn.modules.module.register_module_forward_hook(left)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def compare(path: Path, names: list[str], edges: set[tuple[int, int]]) -> dict[str, Any]:
    from dataflow_reference import RANGE
    from findwall.dataflow.linking import link_flow
    from findwall.readers.observed_steps import read_observed_steps

    flow = link_flow(read_observed_steps(path))
    observed = flow.observed
    of, found = [-1] * len(observed), set()
    for row, name in enumerate(observed.name.tolist()):
        if observed.names[name].startswith(RANGE):
            number = int(observed.names[name].removeprefix(RANGE))
            last = int(observed.last[row])
            of[row : last + 1] = [number] * (last + 1 - row)
            found.add(number)
    pairs = zip(flow.writer.tolist(), flow.reader.tolist(), strict=True)
    mine = {(of[writer], of[reader]) for writer, reader in pairs if writer >= 0}
    mine = {(a, b) for a, b in mine if a >= 0 and b >= 0 and a != b}
    theirs = {(a, b) for a, b in edges if a != b and a in found and b in found}
    right = len(mine & theirs)
    wrong = [f"{names[a]} -> {names[b]}" for a, b in sorted(mine - theirs)]
    missed = [f"{names[a]} -> {names[b]}" for a, b in sorted(theirs - mine)]
    return {
        "ops": len(names),
        "matched": len(found),
        "links": len(theirs),
        "precision": right / max(len(mine), 1),
        "recall": right / max(len(theirs), 1),
        "wrong": wrong[:5],
        "missed": missed[:5],
    }


def run(script: Path, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--inside", str(script), "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no two iterations"])[-1][:200]}
    return dict(json.loads(lines[-1].removeprefix(MARK)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--all", type=Path)
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("job", nargs="?")
    own = sys.argv[1:]
    at = own.index("--") if "--" in own else len(own)
    asked, more = parser.parse_args(own[:at]), own[at + 1 :]
    if asked.inside:
        sys.path.insert(0, str(Path(__file__).resolve().parent))
        observe(asked.job, more)
        return
    jobs = sorted(asked.all.glob("*.py")) if asked.all else [Path(asked.job)]
    rows = {}
    for job in jobs:
        found = rows[job.stem] = run(job, more)
        print(f"{job.stem:20}", found.get("failed") or _line(found), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")


def _line(found: dict[str, Any]) -> str:
    figures = f"precision {found['precision']:.3f} recall {found['recall']:.3f} of {found['links']} links"
    ops = f"{found['matched']} of {found['ops']} ops"
    return f"{figures}, {ops}; wrong {found['wrong'][:2]} missed {found['missed'][:2]}"


if __name__ == "__main__":
    main()
