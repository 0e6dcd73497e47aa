"""Record the zoo's jobs on a real GPU: true step time, what each fix really gives, one trace each.

    python benchmarks/record_jobs.py --out DIR [--only a,b] [--seconds-per-job S]

Every job runs in a process of its own. The true step is measured before any profiler was started in
that process, then the fixes, then one torch.profiler trace of the unchanged job. `DIR/truth.json`
has a row a job and `DIR/traces-N.tar` the traces.
"""

from __future__ import annotations

import argparse
import ast
import gc
import gzip
import importlib
import json
import os
import re
import runpy
import statistics
import subprocess
import sys
import tarfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ZOO = Path(__file__).resolve().parent / "zoo"
CONSTANTS = ("WALLS", "ALSO", "FIXES", "RANKS")
BLOCKS = 5
TAR_BYTES = 14_000_000
STEPS_OF_A_SCRIPT = 60
# Of the script's steps, those before the window are its warm-up, and the three after are what is recorded.
SCHEDULE = {"wait": 1, "warmup": 2, "active": 3, "repeat": 1}


def declared(name: str) -> dict[str, Any]:
    """A job's constants and whether it has `make`, read without importing it and its libraries."""
    found: dict[str, Any] = {"make": False, "RANKS": 1}
    for node in ast.parse((ZOO / f"{name}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "make":
            found["make"] = True
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in CONSTANTS:
            found[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    return found


def job_names() -> list[str]:
    return sorted(path.stem for path in ZOO.glob("*.py") if "WALLS" in declared(path.stem))


# ---- inside the job's own process ----


def versions() -> dict[str, Any]:
    import torch

    there = torch.cuda.is_available()
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name() if there else None,
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }


def timed(step: Callable[[], object], seconds: float) -> dict[str, Any]:
    """Warm up, then the median of five blocks of steps with one synchronize a block."""
    from stepclock import block_ms

    begin = time.perf_counter()
    warm = [block_ms(step, 1) for _ in range(3)]
    while time.perf_counter() - begin < 0.2 * seconds and len(warm) < 50:
        warm.append(block_ms(step, 1))
    steps = max(1, min(400, int(seconds / BLOCKS / (min(warm) * 1e-3))))
    blocks = [block_ms(step, steps) for _ in range(BLOCKS)]
    middle = statistics.median(blocks)
    return {
        "step_ms": round(middle, 4),
        "spread": round((max(blocks) - min(blocks)) / middle, 4),
        "steps_timed": steps * BLOCKS,
        "blocks_ms": [round(block, 4) for block in blocks],
    }


def peak_gib() -> float | None:
    import torch

    return round(torch.cuda.max_memory_allocated() / 2**30, 2) if torch.cuda.is_available() else None


def release() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def profiler(path: Path, wait: int) -> Any:
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=kinds,
        record_shapes=True,
        schedule=torch.profiler.schedule(**{**SCHEDULE, "wait": wait}),
        on_trace_ready=lambda session: session.export_chrome_trace(str(path)),
    )


def recorded(step: Callable[[], object], path: Path, warm: int) -> None:
    for _ in range(warm):
        step()
    with profiler(path, SCHEDULE["wait"]) as session:
        for _ in range(SCHEDULE["wait"] + SCHEDULE["warmup"] + SCHEDULE["active"]):
            step()
            session.step()


def facts_of_trace(path: Path) -> dict[str, Any]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marked = [e for e in events if str(e.get("name", "")).startswith("ProfilerStep") and "dur" in e]
    marks = {e["name"]: e["dur"] for e in marked if e.get("cat") != "gpu_user_annotation"}
    return {
        "profiled_step_ms": round(statistics.mean(marks.values()) / 1e3, 4) if marks else None,
        "kernels_traced": sum(e.get("cat") == "kernel" for e in events),
        "trace_bytes": path.stat().st_size,
    }


def measure_job(name: str, out: Path, seconds: float, size: str) -> dict[str, Any]:
    import torch

    job = importlib.import_module(name)
    torch.manual_seed(0)
    row = {**timed(job.make(size), seconds), "peak_gib": peak_gib(), "fixes": {}, **versions()}
    for fix in job.FIXES:
        release()
        row["fixes"][fix] = measured_fix(job, fix, size, seconds / 2, row["step_ms"])
    release()
    print("measured", flush=True)
    # Built again: a fix may have turned a global switch, and `make` turns it back.
    torch.manual_seed(0)
    path = out / f"{name}.json.gz"
    recorded(job.make(size), path, warm=3 if row["step_ms"] < 500 else 0)
    return {**row, **facts_of_trace(path)}


def measured_fix(job: Any, fix: str, size: str, seconds: float, before_ms: float) -> dict[str, Any]:
    try:
        found = timed(job.make(size, fix), seconds)
    except Exception as problem:  # a fix that cannot be made here must not cost us the job's own row
        return {"error": f"{type(problem).__name__}: {problem}"[:300]}
    speedup = round(before_ms / found["step_ms"], 3)
    return {"step_ms": found["step_ms"], "speedup": speedup, "spread": found["spread"]}


def trace_script(name: str, out: Path, size: str) -> None:
    """Run the script as it is, with a profiler that steps whenever an optimizer does."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    rank = int(os.environ.get("RANK", "0"))
    session = profiler(out / f"{name}{f'-rank{rank}' if rank else ''}.json.gz", wait=8)
    register_optimizer_step_post_hook(lambda *_: session.step())
    sys.argv = [f"{name}.py", "--size", size, "--steps", "16"]
    session.start()
    runpy.run_path(str(ZOO / f"{name}.py"), run_name="__main__")
    session.stop()


def child(arguments: argparse.Namespace) -> None:
    sys.path.insert(0, str(ZOO))
    out = Path(arguments.out)
    if arguments.trace_script:
        trace_script(arguments.child, out, arguments.size)
        return
    importlib.import_module(arguments.child)
    # The imports were done while the job before was being traced; the device is ours from here.
    sys.stdin.readline()
    row = measure_job(arguments.child, out, arguments.seconds_per_job, arguments.size)
    (out / f"{arguments.child}.row").write_text(json.dumps(row))


# ---- the recorder ----


class Worker:
    """One job's process: started early to import, told to go when the device is free."""

    def __init__(self, name: str, arguments: argparse.Namespace, out: Path) -> None:
        self.name, self.out, self.limit = name, out, arguments.timeout
        command = [sys.executable, __file__, "--child", name, "--out", str(out), "--size", arguments.size]
        command += ["--seconds-per-job", str(arguments.seconds_per_job)]
        self.log = open(out / f"{name}.log", "w")  # noqa: SIM115  (closed in `finish`)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def finish(self, measured: Callable[[], None]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        clock = threading.Timer(self.limit, self.process.kill)
        clock.start()
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line == "measured\n":
                    measured()
        except BrokenPipeError:
            pass  # it died while importing; the exit code below says so
        code = self.process.wait()
        clock.cancel()
        self.log.close()
        row = self.out / f"{self.name}.row"
        if row.exists():
            return json.loads(row.read_text())
        return {"error": f"exit {code}: {(self.out / f'{self.name}.log').read_text()[-600:]}"}

    def abandon(self) -> None:
        self.process.kill()
        self.process.wait()


def launcher(ranks: int) -> list[str]:
    if ranks == 1:
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]


def run_script(name: str, ranks: int, arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    """A job without `make`: its own clock gives the truth, a second run of the same script the trace."""
    start = launcher(ranks)
    plain = [*start, str(ZOO / f"{name}.py"), "--size", arguments.size, "--steps", str(STEPS_OF_A_SCRIPT)]
    row: dict[str, Any] = {}
    try:
        said = subprocess.run(plain, capture_output=True, text=True, timeout=arguments.timeout)
        found = re.search(r"mean step ms ([0-9.]+)", said.stdout)
        if not found:
            return {"error": f"exit {said.returncode}: {said.stderr[-600:]}"}
        row = {"step_ms": float(found[1]), "spread": None, "steps_timed": STEPS_OF_A_SCRIPT, "fixes": {}}
        row |= versions()
        traced = [*start, __file__, "--child", name, "--out", str(out)]
        traced += ["--size", arguments.size, "--trace-script"]
        done = subprocess.run(traced, capture_output=True, text=True, timeout=arguments.timeout)
        path = out / f"{name}.json.gz"
        return {**row, **(facts_of_trace(path) if path.exists() else {"trace_error": done.stderr[-600:]})}
    except subprocess.TimeoutExpired as problem:
        return {**row, "error": str(problem)[:300]}


def record_all(names: list[str], arguments: argparse.Namespace, out: Path) -> dict[str, dict[str, Any]]:
    facts = {name: declared(name) for name in names}
    ordered = [n for n in names if facts[n]["make"]] + [n for n in names if not facts[n]["make"]]
    begin, rows, waiting = time.monotonic(), {}, {}

    def ahead(index: int) -> None:
        if index < len(ordered) and facts[ordered[index]]["make"] and index not in waiting:
            waiting[index] = Worker(ordered[index], arguments, out)

    for index, name in enumerate(ordered):
        truth = {"accepted_walls": facts[name]["WALLS"], "must_also_find": facts[name]["ALSO"]}
        if time.monotonic() - begin > arguments.deadline:
            rows[name] = {"error": "not run: past the deadline", **truth}
            continue
        started = time.monotonic()
        try:
            ahead(index)
            if index in waiting:
                found = waiting.pop(index).finish(lambda index=index: ahead(index + 1))
            else:
                found = run_script(name, facts[name]["RANKS"], arguments, out)
        except Exception:  # one job's failure must leave the others' rows
            found = {"error": traceback.format_exc()[-600:]}
        rows[name] = {**found, **truth, "took_s": round(time.monotonic() - started, 1)}
        print(row_text(name, rows[name]), flush=True)
    for worker in waiting.values():
        worker.abandon()
    return rows


def row_text(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name:24} FAILED {row['error'][-200:]!r}"
    fixes = "  ".join(f"{n} {f.get('step_ms', f.get('error', '?')[:60])}" for n, f in row["fixes"].items())
    spread = "" if row["spread"] is None else f"±{row['spread']:.1%}"
    return (
        f"{name:24} {'/'.join(row['accepted_walls'][0]):30} {row['step_ms']:9.3f} ms {spread:7}"
        f" traced {row.get('profiled_step_ms')!s:>9} kernels {row.get('kernels_traced')!s:>6}"
        f" {(row.get('trace_bytes') or 0) / 1e3:6.0f} kB {row.get('took_s', 0):5.1f} s | {fixes}"
    )


def pack(folder: Path, out: Path) -> None:
    """Traces into tar files that stay under the size one file may have."""
    number, used, archive = -1, TAR_BYTES, None
    for path in sorted(folder.glob("*.json.gz")):
        if used + path.stat().st_size > TAR_BYTES:
            if archive:
                archive.close()
            number, used = number + 1, 0
            archive = tarfile.open(out / f"traces-{number}.tar", "w")  # noqa: SIM115  (closed below)
        archive.add(path, arcname=path.name)
        used += path.stat().st_size
        path.unlink()
    if archive:
        archive.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds-per-job", type=float, default=2.0)
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--timeout", type=float, default=75.0, help="seconds one job may take")
    parser.add_argument("--deadline", type=float, default=400.0, help="seconds after which no job starts")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--trace-script", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    out = Path(arguments.out).resolve()
    folder = out / "loose"
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in arguments.only.split(",") if name] or job_names()
    rows = record_all(names, arguments, folder)
    (out / "truth.json").write_text(json.dumps(rows, indent=1))
    pack(folder, out)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    print("\n".join(row_text(name, row) for name, row in rows.items()))


if __name__ == "__main__":
    main()
