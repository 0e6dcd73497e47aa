"""Record the jobs of this folder: true step, what each fix really gives, one trace each.

    python benchmarks/kept_aside/record.py --out DIR [--only a,b] [--size gpu|cpu] [--seconds S]

One process a job, one job at a time. First five blocks of the unchanged job are timed alone, before
any profiler and any fix; then, unless the job says `INTERLEAVE = False`, five more rounds of one block of
the unchanged job and one of each fix (the fixes are held against the unchanged job of the same rounds).
Then one trace is taken of the unchanged job: wait 1, warm-up 2, active 4, CPU and CUDA,
shapes. `DIR/truth.json` and `DIR/traces.tar` grow with every job.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import gzip
import importlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from record_jobs import BLOCKS, facts_of_trace, versions  # noqa: E402

CONSTANTS = ("WALLS", "ALSO", "FIXES", "COMPILED")
SCHEDULE = {"wait": 1, "warmup": 2, "active": 4, "repeat": 1}


def constants(name: str) -> dict[str, Any]:
    """What a job declares, and its docstring's paragraphs, without importing it."""
    tree = ast.parse((HERE / f"{name}.py").read_text())
    found = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in CONSTANTS
    }
    parts = [" ".join(part.split()) for part in (ast.get_docstring(tree) or "").split("\n\n")]
    found["about"] = parts[0]
    for part in parts[1:]:
        for kind in ("Truth", "Fixes"):
            if part.startswith(f"{kind}: "):
                found[kind] = part[len(kind) + 2 :]
    return found


def job_names() -> list[str]:
    return sorted(p.stem for p in HERE.glob("*.py") if "WALLS" in constants(p.stem))


# ---- inside the job's own process ----


def numbers(blocks: list[float]) -> dict[str, Any]:
    middle = statistics.median(blocks)
    return {
        "step_ms": round(middle, 4),
        "spread": round((max(blocks) - min(blocks)) / middle, 4),
        "blocks_ms": [round(block, 4) for block in blocks],
    }


class Variant:
    """The job unchanged or with one fix: built, warmed up, and timed a block at a time."""

    def __init__(self, job: Any, size: str, fix: str | None, seconds: float) -> None:
        import torch
        from stepclock import block_ms

        self.job, self.fix, self.block_ms = job, fix, block_ms
        self.beside: dict[str, Variant] = {}
        torch.manual_seed(0)
        self.step = job.make(size, fix)
        warm = [block_ms(self.step, 1) for _ in range(5)]
        self.rest(getattr(job, "SETTLE", 0))
        warm.append(block_ms(self.step, 4))
        # A multiple of four: some jobs go round four batches.
        self.steps = max(8, min(400, int(seconds / BLOCKS / (min(warm) * 1e-3)) // 4 * 4))
        if size == "cpu":
            self.steps = 2

    def rest(self, steps: int) -> None:
        if hasattr(self.job, "settings"):
            self.job.settings(self.fix)
        for _ in range(steps):
            self.step()

    def block(self, before: int = 3) -> float:
        self.rest(before)
        return self.block_ms(self.step, self.steps)


def measure(job: Any, size: str, seconds: float, save: Callable[[dict[str, Any]], None]) -> Variant:
    base = Variant(job, size, None, seconds)
    row: dict[str, Any] = {**numbers([base.block() for _ in range(BLOCKS)]), "steps_a_block": base.steps}
    row |= {"fixes": {}, **versions(), "date": datetime.now(timezone.utc).date().isoformat()}
    row.pop("cpus")
    save(row)
    interleave = getattr(job, "INTERLEAVE", True)
    fixes: dict[str, Variant] = {}
    for fix in job.FIXES:
        try:
            variant = Variant(job, size, fix, seconds * 0.75)
            if interleave:
                fixes[fix] = variant
            else:
                row["fixes"][fix] = numbers([variant.block() for _ in range(BLOCKS)])
                del variant
        except Exception as problem:  # a fix that cannot be made here must not cost the job's own row
            row["fixes"][fix] = {"error": f"{type(problem).__name__}: {problem}"[:300]}
            traceback.print_exc()
        gc.collect()
    if interleave:
        rounds: dict[str | None, list[float]] = {}
        for _ in range(BLOCKS):
            for variant in (base, *fixes.values()):
                rounds.setdefault(variant.fix, []).append(variant.block())
        row["between_fixes"] = numbers(rounds.pop(None))
        row["fixes"] |= {fix: numbers(blocks) for fix, blocks in rounds.items() if fix}
    against = row.get("between_fixes", row)["step_ms"]
    for found in row["fixes"].values():
        if "step_ms" in found:
            found["speedup"] = round(against / found["step_ms"], 3)
    save(row)
    base.beside = fixes  # kept: a captured graph that goes may take a library's workspace along
    return base


def recorded(variant: Variant, path: Path, warmup: int) -> None:
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    schedule = {**SCHEDULE, "warmup": warmup}
    with torch.profiler.profile(
        activities=kinds,
        record_shapes=True,
        schedule=torch.profiler.schedule(**schedule),
        on_trace_ready=lambda session: session.export_chrome_trace(str(path)),
    ) as session:
        for _ in range(schedule["wait"] + schedule["warmup"] + schedule["active"]):
            variant.step()
            session.step()
    cleaned(path)


def cleaned(path: Path) -> None:
    """Folders out of the trace: of the trace's own name and of generated kernels' files."""
    text = gzip.decompress(path.read_bytes()).decode()
    text = re.sub(r'("(?:traceName|kernel_file)"\s*:\s*")[^"]*/', r"\1", text)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def child(arguments: argparse.Namespace) -> None:
    import torch

    name, out = arguments.child, Path(arguments.out)
    job = importlib.import_module(name)
    print("ready", flush=True)
    sys.stdin.readline()
    if arguments.compile:
        for fix in job.COMPILED:
            step = job.make(arguments.size, fix)
            step()
            step()
        return
    kept: dict[str, Any] = {}

    def save(row: dict[str, Any]) -> None:
        kept.update(row)
        (out / f"{name}.row").write_text(json.dumps(kept))

    base = measure(job, arguments.size, arguments.seconds, save)
    gc.collect()
    if torch.cuda.is_available():
        save({"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)})
    base.rest(5 + getattr(job, "SETTLE", 0))
    path = out / f"{name}.json.gz"
    recorded(base, path, SCHEDULE["warmup"])
    save(facts_of_trace(path))
    if hasattr(job, "SETTLED_TRACE"):
        path = out / f"{name}-settled.json.gz"
        recorded(base, path, job.SETTLED_TRACE)
        save({"settled_trace": {"warmup": job.SETTLED_TRACE, **facts_of_trace(path)}})


# ---- the recorder ----


class Worker:
    def __init__(
        self, name: str, arguments: argparse.Namespace, out: Path, extra: tuple[str, ...] = ()
    ) -> None:
        self.name, self.out = name, out
        command = [sys.executable, __file__, "--child", name, "--out", str(out), "--size", arguments.size]
        command += ["--seconds", str(arguments.seconds), *extra]
        self.log = open(out / f"{name}{''.join(extra)}.log", "w")  # noqa: SIM115  (closed in `finish`)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def ready(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def finish(self, limit: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        clock = threading.Timer(limit, self.process.kill)
        clock.start()
        code = self.process.wait()
        clock.cancel()
        self.log.close()
        file = self.out / f"{self.name}.row"
        row = json.loads(file.read_text()) if file.exists() else {}
        if code:
            row["error"] = f"exit {code}: {(Path(self.log.name)).read_text()[-800:]}"
        return row


def row_text(name: str, row: dict[str, Any]) -> str:
    fixes = "  ".join(
        f"{n} {f['step_ms']} ({f['spread']:.1%})" if "step_ms" in f else f"{n} {f['error'][:90]}"
        for n, f in row.get("fixes", {}).items()
    )
    between = row.get("between_fixes", {})
    return (
        f"{name:20} {row.get('step_ms')} ms ({row.get('spread', 0):.1%}) again {between.get('step_ms')}"
        f" traced {row.get('profiled_step_ms')} kernels {row.get('kernels_traced')}"
        f" {(row.get('trace_bytes') or 0) / 1e3:.0f} kB took {row.get('took_s')} s | {fixes}"
        + (f" | FAILED {row['error'][-400:]!r}" if "error" in row else "")
    )


def told(name: str) -> dict[str, Any]:
    said = constants(name)
    words = {"about": said["about"], "wall_in_words": said["Truth"], "fixes_in_words": said["Fixes"]}
    return words | {"accepted_walls": said["WALLS"], "must_also_find": said["ALSO"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing a job, five blocks together")
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds one job may take")
    parser.add_argument("--deadline", type=float, default=330.0, help="seconds after which no job starts")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    begin = time.monotonic()
    out = Path(arguments.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    loose = Path(tempfile.mkdtemp())
    names = [name for name in arguments.only.split(",") if name] or job_names()
    # Imports, and the compiler's cache, are made before anything is timed.
    compiled = [n for n in names if "COMPILED" in constants(n)] if arguments.size == "gpu" else []
    warmers = [Worker(n, arguments, loose, ("--compile",)) for n in compiled]
    workers = [Worker(n, arguments, loose) for n in names]
    for worker in warmers + workers:
        worker.ready()
    for worker in warmers:
        worker.go()
    for worker in warmers:
        worker.finish(arguments.limit)
    print(f"imported and compiled after {time.monotonic() - begin:.0f} s", flush=True)
    rows: dict[str, Any] = {}
    for worker in workers:
        started = time.monotonic()
        if started - begin > arguments.deadline:
            worker.process.kill()
            rows[worker.name] = {"error": "not run: past the deadline"}
            continue
        worker.go()
        rows[worker.name] = worker.finish(arguments.limit) | told(worker.name)
        rows[worker.name]["took_s"] = round(time.monotonic() - started, 1)
        print(row_text(worker.name, rows[worker.name]), flush=True)
        (out / "truth.json").write_text(json.dumps(rows, indent=1) + "\n")
        with tarfile.open(out / "traces.tar", "a") as archive:
            for path in sorted(loose.glob(f"{worker.name}*.json.gz")):
                archive.add(path, arcname=path.name)
                path.unlink()
    print(f"\nall after {time.monotonic() - begin:.0f} s")
    print("\n".join(row_text(name, row) for name, row in rows.items()))
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        for path in sorted(loose.iterdir()):
            archive.add(path, arcname=path.name)
    shutil.rmtree(loose)


if __name__ == "__main__":
    main()
