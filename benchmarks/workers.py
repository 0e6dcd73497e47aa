"""Whether the workers that findwall asks for are as good as the best number of them.

    python benchmarks/workers.py --out FILE [--loaders a,b] [--rounds 3] [--light X] [--counts 0,2,4,8,16]

For each loader of `workers_jobs.py`: findwall measures the job without workers, and its advice is read from
the document. Then one process times steps with each number of workers as a person would write them, and with
what is advised (workers, batches ahead, threads, kept from epoch to epoch), in turns. `held`: the advised
step is no longer than the one without workers, and at most 15 % longer than the best.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ADVISED, SLACK = "advised", 1.15
TIMED_S, FEWEST_STEPS = 0.8, 6  # of each turn
LANES = 2  # jobs that findwall is started on at once: one loads while the other is measured


def advice_of(loader: str, light: float, runs: Path | None) -> dict[str, Any]:
    """What findwall says of the job without workers."""
    with tempfile.TemporaryDirectory() as own:
        folder = (runs or Path(own)) / loader
        file = folder.with_suffix(".json")
        job = [str(HERE / "in_turn.py"), str(HERE / "workers_jobs.py"), loader]
        job += ["--steps", "100000", "--light", str(light)]
        options = ["--stop", "--steps", "20", "--until", "lines", "--json", str(file), "--out", str(folder)]
        command = [sys.executable, "-m", "findwall", "run", *options, *job]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if not file.exists():
            return {"why": done.stderr[-500:]}
        document = json.loads(file.read_bytes())
        measured = json.loads((folder / "rank0" / "measurement.json").read_bytes())
    cpu = measured["telemetry"].get("cpu") or {}
    found: dict[str, Any] = {name: cpu.get(name) for name in ("loading_busy", "loading_own")}
    for one in document["prescriptions"]:
        if one["fixes"] == ["loader-workers"]:
            return {**found, "parameters": one["parameters"], "step_ms": one["step_ms"], "how": one["how"]}
    return {**found, "wall": document["wall"] and document["wall"].get("cause")}


def measured(loader: str, light: float, rounds: int, settings: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The median step of each setting, ms, by turns of fresh workers."""
    import torch
    from torch.utils.data import DataLoader

    import workers_jobs

    trained, samples = workers_jobs.Trained(), workers_jobs.Samples(loader, light)
    times: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(rounds):
        for name, options in settings.items():
            made = DataLoader(samples, workers_jobs.BATCH, pin_memory=torch.cuda.is_available(), **options)
            times[name].append(_turn(trained, workers_jobs.batches(made), options.get("num_workers", 0)))
            del made
    return {name: median(found) for name, found in times.items()}


def _turn(trained: Any, batches: Any, workers: int) -> float:
    """ms a step. Workers that began together come together: whole rounds are timed, past the first."""
    for _ in range(workers + 2):
        trained.step(next(batches))
    trained.wait()
    began, steps = time.perf_counter(), 0
    while steps < FEWEST_STEPS or (workers and steps % workers) or time.perf_counter() - began < TIMED_S:
        trained.step(next(batches))
        steps += 1
    trained.wait()
    spent = time.perf_counter() - began
    batches.close()
    return spent / steps * 1e3


def advised_options(parameters: dict[str, Any]) -> dict[str, Any]:
    """As `--apply loader-workers` gives them to a loader."""
    from findwall.apply.live_threads import on_one_thread

    workers = int(parameters.get("workers") or os.cpu_count() or 1)
    return {
        "num_workers": workers,
        "prefetch_factor": int(parameters["prefetch"]),
        "persistent_workers": True,
        "worker_init_fn": functools.partial(on_one_thread, None),
    }


def row_of(loader: str, light: float, rounds: int, counts: list[int], said: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    settings = {str(count): {"num_workers": count} if count else {} for count in counts}
    if said.get("parameters"):
        settings[ADVISED] = advised_options(said["parameters"])
    steps = measured(loader, light, rounds, settings)
    best = min(value for name, value in steps.items() if name != ADVISED)
    mine = steps.get(ADVISED, steps["0"])
    held = mine <= steps["0"] * 1.02 and mine <= SLACK * best
    return {"loader": loader, "said": said, "ms": steps, "held": held, "s": round(time.monotonic() - began)}


def shown(row: dict[str, Any]) -> str:
    said, ms = row["said"], row["ms"]
    cores = " of which own ".join(
        "?" if (value := said.get(name)) is None else f"{value:.1f}"
        for name in ("loading_busy", "loading_own")
    )
    asked, step = said.get("parameters") or {}, said.get("step_ms") or {}
    told = "–".join("?" if step.get(end) is None else f"{step[end]:.0f}" for end in ("low", "mid", "high"))
    steps = "  ".join(f"{name}: {value:.1f}" for name, value in ms.items())
    verdict = "held" if row["held"] else "NOT HELD"
    end = f"asked {asked} said {told} | cores {cores} | {row['s']} s"
    return f"{row['loader']:<10} {verdict:<8} {steps}  | {end}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--loaders", default="one_core,blas,tensors,waiting,decoding,locked,restarted")
    parser.add_argument("--counts", default="0,2,4,8,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--light", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=1e9, help="no loader is begun after so many")
    parser.add_argument("--runs", type=Path, help="a folder where the run folders are kept")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    began, counts = time.monotonic(), [int(one) for one in args.counts.split(",")]
    with ThreadPoolExecutor(LANES) as lanes:  # all before the first is timed: that needs all cores
        loaders = args.loaders.split(",")
        told = lanes.map(lambda one: advice_of(one, args.light, args.runs), loaders)
        advice = dict(zip(loaders, told, strict=True))
    print(f"advised after {time.monotonic() - began:.0f} s", flush=True)
    for loader in loaders:
        if time.monotonic() - began > args.seconds:
            print(f"{loader:<10} not begun: no time left", flush=True)
            continue
        rows.append(row_of(loader, args.light, args.rounds, counts, advice[loader]))
        print(shown(rows[-1]), flush=True)
        args.out.write_text(json.dumps({"cores": os.cpu_count(), "loaders": rows}, indent=1) + "\n")
    print(f"held {sum(row['held'] for row in rows)} of {len(rows)} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
