"""Modelled DRAM bytes against hardware counters.

    python benchmarks/dram_bytes.py              on a GPU, with Nsight Compute's `ncu` on the path
    python benchmarks/dram_bytes.py --prepare    anywhere: the jobs run and are modelled, nothing is counted

1. Each job of `dram_jobs.py` runs one step under torch.profiler; findwall models every kernel's bytes.
2. The same step runs in a child under `ncu --cache-control all --metrics dram__bytes.sum`; kernels are
   matched by their order and name.
3. Distinct kernels (job, name, op, inputs) that model or counter put at three times the L2 or more are drawn
   at random, weighted by their time; the error is |modelled / counted - 1|. The bound on size matters: what
   a kernel leaves in the L2 when it ends is not in its DRAM count.

Writes benchmarks/results/dram_bytes.json.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "dram_bytes.json"
METRIC = "dram__bytes.sum"
WARM_UP, DRAWN, SEED, TIMES_L2 = 2, 60, 20, 3.0
MEDIAN_BAR, P90_BAR = 0.15, 0.50
_UNITS = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9}


@dataclass
class Kernel:
    """One kernel of the profiled step."""

    job: str
    name: str
    op: str
    inputs: str
    kernel_class: str
    us: float
    modelled: float | None
    counted: float | None = None

    @property
    def error(self) -> float:
        assert self.modelled is not None and self.counted
        return abs(self.modelled / self.counted - 1.0)


# In the children: the jobs themselves.


def run_traced(size: str, folder: Path, only: str | None = None) -> None:
    """One profiled step of each job, a trace each."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from dram_jobs import JOBS

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if size == "gpu" else [])
    for name, make in JOBS.items():
        if only not in (None, name):
            continue
        step = _warm(make, size)
        with profile(activities=activities, record_shapes=True) as recorded:
            step()
            _wait()
        recorded.export_chrome_trace(str(folder / f"{name}.json"))
        del step, recorded
        _release()
    about = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if size == "gpu":
        about["gpu"] = torch.cuda.get_device_name()
    (folder / "about.json").write_text(json.dumps(about))


def run_counted(job: str) -> None:
    """One step of one job between the profiler's start and stop, for ncu."""
    import torch

    from dram_jobs import JOBS

    step = _warm(JOBS[job], "gpu")
    torch.cuda.profiler.start()
    step()
    _wait()
    torch.cuda.profiler.stop()


def _warm(make, size: str):  # type: ignore[no-untyped-def]
    import torch

    torch.manual_seed(0)
    step = make(size)
    for _ in range(WARM_UP):
        step()
    _wait()
    return step


def _wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _release() -> None:
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# In the parent: model, count, match, draw.


def modelled_kernels(job: str, trace: Path) -> list[Kernel]:
    """The device kernels of a trace in the order they ran."""
    from findwall.attribute.kernels import kernel_table
    from findwall.attribute.links import link
    from findwall.hardware import table_ceilings
    from findwall.model.catalogue import KERNEL_CLASSES
    from findwall.model.events import Kind
    from findwall.readers.torch_trace import read_trace

    timeline = read_trace(trace)
    devices = timeline.header.devices
    table = kernel_table(timeline, link(timeline), table_ceilings(devices[0].name if devices else ""))
    found = []
    for at in sorted(range(len(table.row)), key=lambda index: int(table.start[index])):
        row, op = int(table.row[at]), int(table.op[at])
        if timeline.events.kind[row] != Kind.KERNEL:
            continue
        inputs = timeline.inputs_of(op) if op >= 0 else None
        found.append(
            Kernel(
                job=job,
                name=timeline.name_of(row),
                op=timeline.name_of(op) if op >= 0 else "",
                inputs=json.dumps(inputs.dims) if inputs else "",
                kernel_class=KERNEL_CLASSES[int(table.class_index[at])],
                us=float(table.duration[at]) / 1e3,
                modelled=float(table.bytes[at]) if table.modelled[at] else None,
            )
        )
    return found


def count(job: str, folder: Path) -> list[tuple[str, float]]:
    """(kernel name, bytes) in launch order, from ncu."""
    log = folder / f"{job}.csv"
    command = ["ncu", "--profile-from-start", "off", "--cache-control", "all", "--clock-control", "none"]
    command += [
        "--metrics",
        METRIC,
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--log-file",
        str(log),
    ]
    command += [sys.executable, str(Path(__file__).resolve()), "--child", "count", "--job", job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if done.returncode != 0 or not log.exists():
        text = log.read_text()[-800:] if log.exists() else ""
        print(f"ncu failed on {job} ({done.returncode}): {done.stderr[-800:]} {text}", file=sys.stderr)
        return []
    return read_counts(log.read_text())


def read_counts(text: str) -> list[tuple[str, float]]:
    """Either of ncu's layouts: a column a metric (raw page) or a row a metric (details page)."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        return []
    header, *rows = list(csv.reader(lines))
    name = header.index("Kernel Name")
    if METRIC in header:
        value = header.index(METRIC)
        unit = rows[0][value].lower() if rows and not rows[0][0] else "byte"
        return [(row[name], _number(row[value], unit)) for row in rows if row[0]]
    metric, value, unit_at = (header.index(f"Metric {word}") for word in ("Name", "Value", "Unit"))
    return [(row[name], _number(row[value], row[unit_at].lower())) for row in rows if row[metric] == METRIC]


def _number(text: str, unit: str) -> float:
    return float(text.replace(",", "")) * _UNITS.get(unit, 1.0)


def base_name(name: str) -> str:
    """A kernel's bare name: the two tools demangle templates and anonymous namespaces differently."""
    for noise in ("(anonymous namespace)::", "<unnamed>::", "void "):
        name = name.replace(noise, "")
    return re.split(r"[<(]", name.strip(), maxsplit=1)[0].rsplit("::", 1)[-1].strip()


def match(kernels: list[Kernel], counts: list[tuple[str, float]]) -> int:
    """Give each kernel its count, aligning both lists in order by bare name; how many found one."""
    left = [base_name(kernel.name) for kernel in kernels]
    right = [base_name(name) for name, _ in counts]
    if left == right:
        for kernel, (_, counted) in zip(kernels, counts, strict=True):
            kernel.counted = counted
        return len(kernels)
    matched = 0
    for block in difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            kernels[block.a + offset].counted = counts[block.b + offset][1]
            matched += 1
    return matched


def draw(kernels: list[Kernel], l2_bytes: float) -> list[Kernel]:
    """Distinct large kernels, at random, weighted by the time all their calls take."""
    groups: dict[tuple[str, str, str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.modelled is None or not kernel.counted:
            continue
        if max(kernel.modelled, kernel.counted) >= TIMES_L2 * l2_bytes:
            groups.setdefault((kernel.job, kernel.name, kernel.op, kernel.inputs), []).append(kernel)
    generator = random.Random(SEED)
    pool = [groups[key] for key in sorted(groups)]
    drawn = []
    while pool and len(drawn) < DRAWN:
        weights = [sum(kernel.us for kernel in group) for group in pool]
        chosen = generator.choices(range(len(pool)), weights)[0]
        drawn.append(generator.choice(pool.pop(chosen)))
    return drawn


def summarise(drawn: list[Kernel], kernels: list[Kernel], about: dict[str, str]) -> dict[str, object]:
    errors = sorted(kernel.error for kernel in drawn)
    classes = sorted({kernel.kernel_class for kernel in drawn})
    p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))] if errors else float("nan")
    total = sum(kernel.us for kernel in kernels)
    return {
        "date": date.today().isoformat(),
        **about,
        "kernels": len(drawn),
        "classes": classes,
        "median_error": statistics.median(errors) if errors else None,
        "p90_error": p90,
        "bars": {"median": MEDIAN_BAR, "p90": P90_BAR, "kernels": 40, "classes": 6},
        "kernels_seen": len(kernels),
        "modelled_share_of_time": sum(k.us for k in kernels if k.modelled is not None) / max(total, 1e-9),
        "counted_share_of_time": sum(k.us for k in kernels if k.counted) / max(total, 1e-9),
        "at_least_times_l2": TIMES_L2,
        "seed": SEED,
        "table": [{**asdict(kernel), "error": kernel.error} for kernel in drawn],
    }


def show(drawn: list[Kernel], summary: dict[str, object]) -> None:
    print(f"{'job':11s} {'class':10s} {'ms':>7s} {'model MB':>9s} {'DRAM MB':>9s} {'error':>6s}  kernel / op")
    for kernel in sorted(drawn, key=lambda kernel: -kernel.error):
        modelled, counted = (kernel.modelled or 0) / 1e6, (kernel.counted or 0) / 1e6
        figures = f"{kernel.us / 1e3:7.3f} {modelled:9.1f} {counted:9.1f} {kernel.error:6.1%}"
        what = f"{base_name(kernel.name)[:44]} / {kernel.op} {kernel.inputs[:60]}"
        print(f"{kernel.job:11s} {kernel.kernel_class:10s} {figures}  {what}")
    classes = ", ".join(sorted({kernel.kernel_class for kernel in drawn}))
    shares = (
        f"modelled {summary['modelled_share_of_time']:.1%}, counted {summary['counted_share_of_time']:.1%}"
    )
    print(f"{len(drawn)} kernels ({classes}); of all kernel time {shares}")
    print(f"median error {summary['median_error']:.1%} (bar {MEDIAN_BAR:.0%})")
    print(f"90th percentile {summary['p90_error']:.1%} (bar {P90_BAR:.0%})")


def trace_jobs(folder: Path) -> None:
    """All traces from one process; a job that came out without kernels gets a process of its own."""
    from dram_jobs import JOBS

    command = [sys.executable, __file__, "--child", "trace", "--size", "gpu", "--folder", str(folder)]
    subprocess.run(command, check=True)
    for job in JOBS:
        if not modelled_kernels(job, folder / f"{job}.json"):
            subprocess.run([*command, "--job", job], check=True)


def measure(folder: Path, everything: Path | None) -> int:
    """The whole benchmark on a GPU."""
    from dram_jobs import JOBS
    from findwall.hardware import table_ceilings

    begin = time.perf_counter()
    trace_jobs(folder)
    about = json.loads((folder / "about.json").read_text())
    about["ncu"] = (
        subprocess.run(["ncu", "--version"], capture_output=True, text=True).stdout.split("\n")[-2].strip()
    )
    kernels: list[Kernel] = []
    for job in JOBS:
        mine = modelled_kernels(job, folder / f"{job}.json")
        counts = count(job, folder)
        matched = match(mine, counts)
        print(
            f"{job}: {len(mine)} kernels, {len(counts)} counted, {matched} matched, "
            f"{time.perf_counter() - begin:.0f} s",
            flush=True,
        )
        kernels += mine
    drawn = draw(kernels, float(table_ceilings(about["gpu"]).l2_bytes or 60e6))
    summary = summarise(drawn, kernels, about)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(summary, indent=1) + "\n")
    if everything is not None:
        everything.write_text(json.dumps([asdict(kernel) for kernel in kernels]))
    show(drawn, summary)
    good = len(drawn) >= 40 and len(summary["classes"]) >= 6  # type: ignore[arg-type]
    good = good and summary["median_error"] < MEDIAN_BAR and summary["p90_error"] < P90_BAR  # type: ignore[operator]
    return 0 if good else 1


def prepare(folder: Path) -> int:
    """What can be tried without a GPU: the jobs run, their traces read, the parser parses."""
    from dram_jobs import JOBS

    run_traced("cpu", folder)
    for job in JOBS:
        print(f"{job}: trace of {(folder / f'{job}.json').stat().st_size} bytes,", end=" ")
        print(f"{len(modelled_kernels(job, folder / f'{job}.json'))} device kernels")
    sample = (
        '"ID","Kernel Name","dram__bytes.sum"\n"","","byte"\n"0","void a::<unnamed>::k<int>(int)","1,024"\n'
    )
    assert read_counts("==PROF== x\n" + sample) == [("void a::<unnamed>::k<int>(int)", 1024.0)]
    assert (
        base_name("void a::(anonymous namespace)::k<int>(int)")
        == base_name("void a::<unnamed>::k<int>(int)")
        == "k"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--prepare", action="store_true", help="try all that needs no GPU")
    parser.add_argument("--all", type=Path, help="also write every kernel's figures here")
    parser.add_argument("--child", choices=("trace", "count"), help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--size", default="gpu", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
    if asked.child == "trace":
        run_traced(asked.size, asked.folder, asked.job)
        return 0
    if asked.child == "count":
        run_counted(asked.job)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if asked.prepare:
            return prepare(Path(folder))
        if shutil.which("ncu") is None:
            print("ncu (Nsight Compute) is not on the path", file=sys.stderr)
            return 2
        return measure(Path(folder), asked.all)


if __name__ == "__main__":
    sys.exit(main())
