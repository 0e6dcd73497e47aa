"""What each fix really gives: the zoo's jobs, plain and with each of their fixes, in interleaved processes.

    python benchmarks/fix_pairs.py --out FILE [--only a,b] [--fork] [--rounds 3] [--seconds S] [--deadline S]

A job's arms (plain, and one for each of its `FIXES`) take turns for `--rounds`: each turn is a fresh process
that warms up and times its own steps, with no profiler, for `--seconds`. `spread` is (max − min) / median of
an arm's processes; `low` and `high` bound the speed-up. Rows are written after every job, the most telling
jobs first, and rows of other jobs in the file stay.

`--fork`: processes are forked from one that has imported torch and never touched the device, which saves
the seconds that importing takes. `--prepare N`: arms that compile run once before, N at a time and untimed,
so that what they compile is on disk.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.metadata
import json
import math
import os
import re
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from findwall.trial.arms_in_turn import Arm, Outcome, Plan, Process, Sample, Trial, fresh, run_trial
from findwall.trial.statistics import prove

ZOO = Path(__file__).resolve().parent / "zoo"
PLAIN = "plain"
# The kinds of fixes that predictions are made for, and walls that are unlike each other, come first.
TELLING = (
    "conv_fp32",
    "plain_adamw",
    "handwritten_gelu",
    "bias_attention",
    "odd_widths",
    "resnet50_default",
    "pageable_batches",
    "layout_flips",
    "slow_loader",
    "upcast_tower",
    "own_profiler",
    "accelerate_fp32",
    "empty_cache",
    "json_logging",
    "checkpointed_blocks",
    "graph_messages",
    "collect_garbage",
    "decode_graph",
)
START_S = {True: 2.0, False: 9.0}  # forked or not, to the first step; by hand, from runs on an H200
COMPILE_S = (12.0, 3.0)  # the first time, and from the cache on disk; likewise
PRELOADED = ("torch._inductor.compile_fx", "torch._dynamo", "triton", "torchvision", "accelerate")


def declared(path: Path) -> list[str]:
    """The fixes that the job's own command line takes, read without running it."""
    text = path.read_text()
    tree = ast.parse(text).body
    makes = any(isinstance(node, ast.FunctionDef) and node.name == "make" for node in tree)
    own = re.search(r"^from fixclock import", text, re.MULTILINE) is not None
    for node in tree:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FIXES" and (makes or own):
            return list(ast.literal_eval(node.value))
    return []


def job_names() -> list[str]:
    """Every job with a fix, the most telling first."""
    found = {path.stem for path in ZOO.glob("*.py") if declared(path)}
    return [name for name in TELLING if name in found] + sorted(found - set(TELLING))


def arms_of(name: str, options: argparse.Namespace) -> list[Arm]:
    command = (sys.executable, str(ZOO / f"{name}.py"), "--size", options.size)
    command += ("--seconds", str(options.seconds))
    fixes = [Arm(fix, (*command, "--fix", fix)) for fix in declared(ZOO / f"{name}.py")]
    return [Arm(PLAIN, command), *fixes]


# ---- processes that need not import torch ----


class Forked:
    """A child of this process, as a trial sees it."""

    def __init__(self, pid: int) -> None:
        self.pid, self._code = pid, None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def forked(arm: Arm, env: Mapping[str, str], stdout: int, stderr: int) -> Process:
    """The arm's script in a copy of this process, with the script's command line, folder and environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # here and there: whoever comes first
        return Forked(pid)
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.environ.clear()
        os.environ.update(env)
        run_script(arm.argv[1:])
        code = 0
    except SystemExit as wish:
        code = wish.code if isinstance(wish.code, int) else int(wish.code is not None)
        if isinstance(wish.code, str):
            print(wish.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_script(argv: tuple[str, ...]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    sys.argv = list(argv)
    sys.path[0] = str(Path(argv[0]).parent)
    runpy.run_path(argv[0], run_name="__main__")


def preload() -> None:
    """Import torch, and what compiling needs, as far as a forked child can still use the device after it."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else asking for a device already opens it
    import torch

    del torch
    if not children_reach_the_device(PRELOADED):
        print("the device is out of reach after importing the compiler: importing torch alone", flush=True)
        return
    import_all(PRELOADED)


def import_all(modules: tuple[str, ...]) -> None:
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def children_reach_the_device(modules: tuple[str, ...]) -> bool:
    """Tried in a child that imports them and has a child of its own, so that this process stays clean."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = 1
    try:
        import_all(modules)
        grandchild = os.fork()
        if grandchild:
            code = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        else:
            import torch

            code = int(torch.cuda.is_available() and torch.ones(1, device="cuda").item() != 1)
    finally:
        os._exit(code)


def compiles(fix: str) -> bool:
    return "compile" in fix or "reduce_overhead" in fix


def prepare(names: list[str], options: argparse.Namespace, until: float) -> None:
    """Every arm that compiles, once, several at a time. One that fails will say so when it is timed."""
    start = forked if options.fork else fresh
    waiting = [arm for name in names for arm in arms_of(name, options) if compiles(arm.name)]
    running: list[tuple[Process, float]] = []
    with open(os.devnull, "w") as nowhere:
        try:
            while (waiting or running) and time.monotonic() < until:
                for process, begun in running:
                    if time.monotonic() > begun + options.timeout:
                        end(process)
                running = [one for one in running if one[0].poll() is None]
                while waiting and len(running) < options.prepare:
                    arm = waiting.pop(0)
                    arm = Arm(arm.name, (*arm.argv, "--seconds", "0.01"))  # the last of an option counts
                    process = start(arm, dict(os.environ), nowhere.fileno(), nowhere.fileno())
                    running.append((process, time.monotonic()))
                time.sleep(0.05)
        finally:
            for process, _ in running:
                end(process)


def end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


# ---- rows ----


def spread(runs_ms: list[float]) -> float | None:
    """(max - min) / median of the processes; None for fewer than two."""
    return (max(runs_ms) - min(runs_ms)) / median(runs_ms) if len(runs_ms) > 1 else None


def row_of(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step_ms": rounded(outcome.median_ms),
        "spread": rounded(spread(outcome.runs_ms)),
        "runs_ms": outcome.runs_ms,
    }
    if outcome.failures:
        found["failures"] = [f"{one.trouble}: {one.what}" for one in outcome.failures]
    return found


def fixed_row(plain: Outcome, fixed: Outcome) -> dict[str, Any]:
    found = row_of(fixed)
    if plain.median_ms and fixed.median_ms:
        found["speedup"] = rounded(plain.median_ms / fixed.median_ms)
    interval = prove(plain.runs_ms, fixed.runs_ms)
    if interval is not None:
        found["low"], found["high"] = rounded(interval.low), rounded(interval.high)
    return found


def job_row(trial: Trial) -> dict[str, Any]:
    plain = trial.arms[PLAIN]
    fixes = {name: fixed_row(plain, arm) for name, arm in trial.arms.items() if name != PLAIN}
    turns = {name: [one.turn for one in arm.samples] for name, arm in trial.arms.items()}
    found = {**row_of(plain), "fixes": fixes, "turns": turns, "took_s": round(trial.seconds, 1)}
    return found if trial.ended == "done" else {**found, "ended": trial.ended}


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def lines(name: str, row: dict[str, Any]) -> str:
    told = [f"{name}: {row['step_ms']} ms, spread {row['spread']}, {row['took_s']} s"]
    for fix, one in row["fixes"].items():
        interval = f"({one['low']}-{one['high']})" if "low" in one else ""
        told.append(f"  {fix:28s} {one['step_ms']} ms {one.get('speedup')}x {interval} {one['runs_ms']}")
        told += [f"    {failure}" for failure in one.get("failures", ())]
    return "\n".join(told)


def machine() -> dict[str, Any]:
    """Asked of the driver's library: torch would open the device."""
    gpu = None
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
        pynvml.nvmlShutdown()
    return {
        "gpu": gpu,
        "torch": importlib.metadata.version("torch"),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "date": date.today().isoformat(),
    }


def estimate_s(names: list[str], options: argparse.Namespace) -> float:
    """Of all processes: start, compile, warm-up and timed steps."""
    total = 0.0
    for name in names:
        for arm in [PLAIN, *declared(ZOO / f"{name}.py")]:
            total += options.rounds * (START_S[options.fork] + 1.4 * options.seconds)
            if compiles(arm):
                first = COMPILE_S[0] / (options.prepare or 1) + COMPILE_S[1] * bool(options.prepare)
                total += first + COMPILE_S[1] * (options.rounds - 1)
    return total


def measure_all(names: list[str], options: argparse.Namespace) -> None:
    rows: dict[str, Any] = {}
    if options.out.exists():
        rows = json.loads(options.out.read_text())["jobs"]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    settings = {"rounds": options.rounds, "seconds": options.seconds, "forked": options.fork}
    until = time.monotonic() + options.deadline
    if options.prepare:
        prepare(names, options, until)
    for name in names:
        left = until - time.monotonic()
        if left <= 0:
            print(f"{name}: not run, past the deadline")
            continue
        trial = run_trial(arms_of(name, options), plan_of(options, left))
        rows[name] = {**job_row(trial), **settings}
        print(lines(name, rows[name]), flush=True)
        document = {**machine(), "jobs": rows}
        options.out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        if trial.ended == "interrupted":
            break


def plan_of(options: argparse.Namespace, left_s: float) -> Plan:
    def tell(name: str, sample: Sample) -> None:
        told = f"{sample.step_ms} ms" if sample.failure is None else sample.failure.trouble
        print(f"    {name:28s} {told}  ({sample.seconds:.1f} s)", flush=True)

    return Plan(
        rounds=options.rounds,
        process_s=options.timeout,
        deadline_s=left_s,
        stop_when_told=True,
        start=forked if options.fork else fresh,
        tell=tell,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="these jobs, in this order")
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="timed in each process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fork", action="store_true", help="fork processes from one that has imported torch")
    parser.add_argument("--prepare", type=int, default=0, help="compile before, so many at a time")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds one process may take")
    parser.add_argument("--deadline", type=float, default=math.inf, help="end all after so many seconds")
    parser.add_argument("--list", action="store_true", help="say what would run and about how long")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or job_names()
    if options.list or options.out is None:
        for name in names:
            print(f"{name:24s} {' '.join(declared(ZOO / f'{name}.py'))}")
        pairs = sum(len(declared(ZOO / f"{name}.py")) for name in names)
        print(f"{len(names)} jobs, {pairs} pairs, about {estimate_s(names, options):.0f} s")
        return
    if options.fork:
        preload()
    measure_all(names, options)


if __name__ == "__main__":
    main()
