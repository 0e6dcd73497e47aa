"""Whether `findwall sweep` finds the plateau and the memory of batch sizes that are measured without it.

    python benchmarks/sweeps.py truth|sweep|score|all --folder DIR [--jobs a,b] [--within 360] [--out FILE]

`truth` times each job of `sweep_jobs` with each batch size, one process a job, until it runs out of memory;
`sweep` runs `findwall sweep` on the same scripts; `score` holds what `sweep` wrote against the truth. Jobs
share the time evenly; what there is none for is told as not measured. At the end stands what must hold, line
by line. `--tiny` takes the jobs' small form on a CPU, where no memory is measured.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stamped import elsewhere, stamp

HERE = Path(__file__).resolve().parent
JOBS = HERE / "sweep_jobs"
NAMES = ("images", "words", "tables", "speech", "denoise")
WARM_UP, TIMED = 4, 12
LASTS_S = 1.0  # the timed steps, at the least: a hiccup of the host is as long as a dozen of them
TINY = ["--tiny", "--cpu"]
TINY_LARGEST = 64
NEAR_BEST = 0.95
TRUTH_SHARE = 0.25  # of a job's time
FEWEST_S = 8.0  # less is no time for a process
NEAR_PERCENT = 3.0
GIB = 2**30


def timed(module: Any, given: list[str]) -> dict[str, Any]:
    """The job with one batch size: its speed over a few steps, and what it took of the device."""
    import torch

    has_gpu = torch.cuda.is_available() and "--cpu" not in given
    if has_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    samples, began, steps = 0, 0.0, 0
    running = module.steps(module.parsed([*given, "--steps", str(10**6)]))
    for step, count in enumerate(running, 1):
        samples, steps = (samples + count, steps + 1) if step > WARM_UP else (0, 0)
        if step == WARM_UP or (steps >= TIMED and time.perf_counter() - began > LASTS_S):
            if has_gpu:
                torch.cuda.synchronize()
            if steps:
                break
            began = time.perf_counter()
    seconds = time.perf_counter() - began
    running.close()
    found = {"samples_per_s": samples / seconds, "step_ms": 1e3 * seconds / steps}
    if has_gpu:
        found["peak_gib"] = torch.cuda.max_memory_allocated() / GIB
        found["reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
    return found


def tried(module: Any, given: list[str]) -> dict[str, Any]:
    """The same, or why there is no figure; nothing of the job is alive when this returns."""
    import torch

    try:
        return timed(module, given)
    except RuntimeError as problem:  # the libraries say by names of their own that they get no memory
        said = str(problem).splitlines()[0].split(". GPU ")[0]
        none_left = isinstance(problem, torch.OutOfMemoryError) or "ALLOC_FAILED" in said
        return {"why": said, "out_of_memory": none_left}
    except SystemExit as problem:
        return {"why": str(problem), "out_of_memory": False}


def truth_of(name: str, folder: Path, tiny: bool, within: float) -> None:
    """Every size from a quarter of the job's own, doubled until it does not fit. In a process of its own,
    which may be ended: what is known by then is written."""
    until = time.monotonic() + within
    module = importlib.import_module(f"sweep_jobs.{name}")
    own = module.parsed([]).batch_size
    sizes: dict[int, dict[str, Any]] = {}
    size, ended = max(1, own // 4), ""
    while not ended:
        began = time.monotonic()
        found = tried(module, ["--batch-size", str(size), *(TINY if tiny else [])])
        gc.collect()
        sizes[size] = found
        print(f"{name} {size}: {found}", file=sys.stderr, flush=True)
        ended = found.get("why", "")
        took = time.monotonic() - began
        if time.monotonic() + 2 * took > until or (tiny and size >= TINY_LARGEST):
            ended = ended or "larger ones were not tried"
        size *= 2
        (folder / f"{name}.truth.json").write_text(json.dumps(summed(own, sizes, ended), indent=1))


def summed(own: int, sizes: dict[int, dict[str, Any]], ended: str) -> dict[str, Any]:
    ran = [at for at, one in sizes.items() if "samples_per_s" in one]
    fast = [at for at in ran if sizes[at]["samples_per_s"] >= NEAR_BEST * best_of(sizes)]
    return {
        "own": own,
        "sizes": sizes,
        "ended": ended,
        "out_of_memory": any(one.get("out_of_memory") for one in sizes.values()),
        "smallest": min(fast, default=None),
        "largest": max(ran, default=None),
    }


def best_of(sizes: dict[int, dict[str, Any]]) -> float:
    return max((one.get("samples_per_s", 0.0) for one in sizes.values()), default=0.0)


def truth(name: str, folder: Path, tiny: bool, within: float) -> None:
    (folder / f"{name}.truth.json").unlink(missing_ok=True)
    command = [sys.executable, __file__, "one", "--folder", str(folder), "--jobs", name]
    command += ["--within", str(within), *(["--tiny"] if tiny else [])]
    bounded(command, folder, 2 * within)


def sweep(name: str, folder: Path, tiny: bool, within: float) -> None:
    """Findwall's own, with its text kept beside its document. It ends its processes itself, in time."""
    document = folder / f"{name}.sweep.json"
    document.unlink(missing_ok=True)
    budget = f"{max(within - FEWEST_S / 2, 1):.0f}s"
    command = [sys.executable, "-m", "findwall", "sweep", "--budget", budget]
    command += ["--steps", str(TIMED)] if tiny else []
    command += ["--json", str(document), str(JOBS / f"{name}.py"), *(TINY if tiny else [])]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        said = bounded(command, Path(work), within + FEWEST_S)
    said = f"{time.monotonic() - began:.1f} s, {said}"
    (folder / f"{name}.sweep.txt").write_text(said)
    print(f"{name}: {said}", flush=True)


def bounded(command: list[str], cwd: Path, limit_s: float) -> str:
    """One process; what it said, or that there was no time for it. SIGINT lets findwall end its own."""
    with subprocess.Popen(
        command, cwd=cwd, env=elsewhere(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                said, _ = process.communicate(timeout=FEWEST_S)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            return f"ended after {limit_s:.0f} s\n{said}"
    return f"exit {process.returncode}\n{said}"


def off(said: float | None, true: float | None) -> float | None:
    """In percent of what is true."""
    return round(100 * (said / true - 1), 2) if said and true else None


def point_row(point: dict[str, Any], true: dict[str, Any]) -> dict[str, Any]:
    """What was said of one size, against what it is."""
    said, limit = point.get("predicted_gib"), true.get("limit_gib")
    fits = "samples_per_s" in true
    return {
        "batch_size": point["batch_size"],
        "outcome": point["outcome"],
        "fits": fits if fits or true.get("out_of_memory") else None,
        "predicted_gib": said,
        "true_gib": true.get("peak_gib"),
        "error_percent": off(said, true.get("peak_gib")),
        "reserved_error_percent": off(point.get("predicted_reserved_gib"), true.get("reserved_gib")),
        "read_peak_error_percent": off(point.get("peak_gib"), true.get("peak_gib")),
        "speed_error_percent": off(point.get("samples_per_s"), true.get("samples_per_s")),
        "said_to_fit": None if said is None or limit is None else said <= limit,
        "is_doubtful": point.get("is_doubtful", False),
    }


def score(name: str, folder: Path) -> dict[str, Any]:
    known = folder / f"{name}.truth.json"
    true = json.loads(known.read_text()) if known.exists() else summed(0, {}, "not measured")
    file = folder / f"{name}.sweep.json"
    said = (json.loads(file.read_text()) if file.exists() else {}).get("sweep") or {}
    limit = {"limit_gib": said.get("limit_gib")}
    points = [
        point_row(one, true["sizes"].get(str(one["batch_size"]), {}) | limit)
        for one in said.get("points", [])
    ]
    errors = [abs(one["error_percent"]) for one in points if one["error_percent"] is not None]
    failed = [
        one["batch_size"]
        for one in points
        if one["said_to_fit"] and not one["is_doubtful"] and one["outcome"] == "out-of-memory"
    ]
    withheld = [
        one["batch_size"] for one in points if one["outcome"] == "would-not-fit" and one["fits"] is True
    ]
    smallest = said.get("smallest")
    near = bool(smallest and true["smallest"] and 0.5 <= smallest / true["smallest"] <= 2)
    is_whole = said.get("ended") == "done" and true["ended"] not in ("", "not measured")
    return {
        "points": points,
        "worst_error_percent": max(errors, default=None),
        "predicted_to_fit_and_failed": failed,
        "withheld_though_it_fits": withheld,
        "smallest": [smallest, true["smallest"]],
        "smallest_within_one_doubling": near if near or is_whole else None,
        "largest": [said.get("largest"), true["largest"]],
        "largest_predicted": said.get("largest_predicted"),
        "wall": said.get("wall"),
        "cause": said.get("cause"),
        "ended": [said.get("ended"), true["ended"]],
        "seconds": said.get("seconds"),
        "says": said.get("says", []),
        "truth": true,
    }


def shown(rows: dict[str, dict[str, Any]]) -> None:
    """First size by size, then a line a job; each pair is what findwall says and what is true."""
    columns = ("error_percent", "reserved_error_percent", "read_peak_error_percent", "speed_error_percent")
    print(f"{'':10}{'batch':>8}  {'outcome':16}{'peak %':>9}{'reserved':>9}{'read':>9}{'speed':>9}")
    for name, found in rows.items():
        for one in found["points"]:
            cells = "".join("        -" if one[key] is None else f"{one[key]:>+9.1f}" for key in columns)
            print(f"{name:10}{one['batch_size']:>8}  {one['outcome']:16}{cells}")
    print(f"\n{'':10}{'smallest':>16}{'largest':>16}{'worst %':>9}{'failed':>8}{'withheld':>9}  wall")
    for name, found in rows.items():
        pairs = "".join("/".join(map(str, found[key])).rjust(16) for key in ("smallest", "largest"))
        failed, withheld = found["predicted_to_fit_and_failed"], found["withheld_though_it_fits"]
        worst = found["worst_error_percent"]
        print(
            f"{name:10}{pairs}{'-' if worst is None else worst:>9}{len(failed):>8}{len(withheld):>9}"
            f"  {found['wall']}/{found['cause']}"
        )


def judged(rows: dict[str, dict[str, Any]]) -> list[tuple[str, list[bool | None]]]:
    """Each line of what must hold, with what was seen of it; None where nothing was."""
    points = [one for found in rows.values() for one in found["points"]]
    errors = [one["error_percent"] for one in points]
    near = [None if one is None else abs(one) <= NEAR_PERCENT for one in errors]
    fits = [
        None if found["worst_error_percent"] is None else not found["predicted_to_fit_and_failed"]
        for found in rows.values()
    ]
    given = [
        None if found["worst_error_percent"] is None else not found["withheld_though_it_fits"]
        for found in rows.values()
    ]
    return [
        (f"peaks that were predicted are within {NEAR_PERCENT:.0f} %", near),
        ("nothing that was said to fit fails, job by job", fits),
        ("nothing that fits was withheld, job by job", given),
        (
            "the plateau begins within one doubling of the full sweep's",
            [found["smallest_within_one_doubling"] for found in rows.values()],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("truth", "sweep", "score", "all", "one"))
    parser.add_argument("--folder", type=Path, required=True, help="what truth and sweep leave for score")
    parser.add_argument("--jobs", default=",".join(NAMES))
    parser.add_argument("--within", type=float, default=360.0, help="seconds for all of it")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names, folder = asked.jobs.split(","), asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.what == "one":
        truth_of(names[0], folder, asked.tiny, asked.within)
        return
    until = time.monotonic() + asked.within
    for at, name in enumerate(names):
        share = (until - time.monotonic()) / (len(names) - at)
        if asked.what in ("truth", "all"):
            part = TRUTH_SHARE if asked.what == "all" else 1.0
            truth(name, folder, asked.tiny, part * share)
        ends = until - share * (len(names) - at - 1)
        if asked.what in ("sweep", "all") and ends - time.monotonic() > FEWEST_S:
            sweep(name, folder, asked.tiny, ends - time.monotonic() - FEWEST_S / 2)
    if asked.what in ("score", "all"):
        told(names, folder, asked)


def told(names: list[str], folder: Path, asked: argparse.Namespace) -> None:
    rows = {name: score(name, folder) for name in names}
    must = judged(rows)
    if asked.out:
        whole = {**stamp("cpu" if asked.tiny else "cuda"), "within_s": asked.within, "jobs": rows}
        whole["must_hold"] = dict(must)
        asked.out.write_text(json.dumps(whole, indent=1) + "\n")
    shown(rows)
    print()
    for what, seen in must:
        held, known = sum(one is True for one in seen), sum(one is not None for one in seen)
        verdict = "unknown" if not known else "holds" if held == known else "DOES NOT HOLD"
        print(f"{verdict:14} {what}: {held} of {known}, {len(seen) - known} not measured")


if __name__ == "__main__":
    main()
