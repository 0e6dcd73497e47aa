"""Modelled DRAM bytes against hardware counters.

    python benchmarks/dram_bytes.py              on a GPU, with Nsight Compute's `ncu` on the path
    python benchmarks/dram_bytes.py --prepare    anywhere: the jobs run and are modelled, nothing is counted

1. Each job of `dram_jobs.py` runs one step under torch.profiler; findwall models every kernel's bytes.
2. The same step runs under `ncu --cache-control all`; kernels are matched in launch order (`dram_counts.py`).
   A job of which fewer than nine in ten are found is counted once more, alone and by another way of replay.
3. Distinct kernels (job, name, op, inputs) that model or counter put at three times the L2 or more are drawn
   at random, weighted by their time; the error is |modelled / counted - 1|. The bound on size matters: what
   a kernel leaves in the L2 when it ends is not in its DRAM count.

The model is of the least a kernel can move. One that fetches a sector and uses an eighth of it, or reads its
input twice, counts more; that is its waste, and stands in the table as an error all the same.

Writes benchmarks/results/dram_bytes.json: the drawn kernels, and every distinct large one beside them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from dram_counts import Job, Kernel, Listing, Shape, align, read_counts, run_ncu  # noqa: E402
from dram_report import draw, is_good, large, show, summarise  # noqa: E402

RESULT = HERE / "results" / "dram_bytes.json"
WARM_UP = 2
FOUND = 0.9  # of a job's kernels; below it the job is counted again
DEADLINE_S, SECOND_TRY_S, GROUP_S = 225.0, 45.0, 110.0
# One `ncu` process each: starting one takes longer than most jobs.
GROUPS = (
    ("adam", "sgd", "clipping", "tables", "pointwise"),
    ("gpt2_sdpa", "gpt2_naive"),
    ("resnet", "llama"),
)


# In the children: the jobs themselves.


def run_traced(size: str, folder: Path, only: list[str]) -> None:
    """One profiled step of each job, a trace each."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from dram_jobs import JOBS

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if size == "gpu" else [])
    for name in only or JOBS:
        step = _warm(JOBS[name], size)
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


def run_counted(jobs: list[str]) -> None:
    """One step of each job between the profiler's start and stop, for ncu; a marker before each."""
    import torch

    from dram_jobs import JOBS

    torch.cuda.init()
    for job in jobs:
        _between(lambda: torch.cuda._sleep(1000))
        try:
            step = _warm(JOBS[job], "gpu")
            _between(step)
        except Exception as error:  # the jobs after it are still counted
            print(f"{job}: {type(error).__name__}: {error}", flush=True)
        step = None
        _release()


def _between(act: Callable[[], object]) -> None:
    import torch

    torch.cuda.profiler.start()
    act()
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


def child(kind: str, jobs: Iterable[str], *more: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), "--child", kind, "--jobs", ",".join(jobs), *more]


# In the parent: model, count, match, draw.


def modelled_kernels(job: str, trace: Path) -> list[Kernel]:
    """The device kernels of a trace in the order they ran."""
    from findwall.machine.hardware import table_ceilings
    from findwall.model.catalogue import KERNEL_CLASSES
    from findwall.model.events import Kind
    from findwall.readers.torch_trace import read_trace
    from findwall.step.links import link
    from findwall.work.kernel_table import kernel_table

    timeline = read_trace(trace)
    devices = timeline.header.devices
    table = kernel_table(timeline, link(timeline), table_ceilings(devices[0].name if devices else ""))
    found = []
    for at in sorted(range(len(table.row)), key=lambda index: int(table.start[index])):
        row, op = int(table.row[at]), int(table.op[at])
        if timeline.events.kind[row] != Kind.KERNEL:
            continue
        inputs = timeline.inputs_of(op) if op >= 0 else None
        launch = timeline.details.launch_of(int(timeline.events.launch[row]))
        name = timeline.name_of(row)
        found.append(
            Kernel(
                job=job,
                name=name,
                op=timeline.name_of(op) if op >= 0 else "",
                inputs=json.dumps(inputs.dims) if inputs else "",
                kernel_class=KERNEL_CLASSES[int(table.class_index[at])],
                us=float(table.duration[at]) / 1e3,
                modelled=float(table.bytes[at]) if table.modelled[at] else None,
                shape=Shape(name, launch.grid if launch else None, launch.block if launch else None),
            )
        )
    return found


def count_all(jobs: dict[str, Job], folder: Path, left: Callable[[], float]) -> None:
    for at, group in enumerate(GROUPS):
        seconds = min(GROUP_S, left())
        if seconds < SECOND_TRY_S / 2:
            print(f"no time left to count {', '.join(group)}", flush=True)
            continue
        listing = run_ncu(child("count", group), folder / f"group{at}.csv", "kernel", seconds)
        pieces = listing.by_job(group)
        for name in group:
            jobs[name].take(pieces.get(name, []), listing.said)
            tell(jobs[name], left)
    for job in jobs.values():
        if job.share < FOUND and left() > SECOND_TRY_S / 2:
            again(job, folder, min(SECOND_TRY_S, left()))
            tell(job, left)


def again(job: Job, folder: Path, seconds: float) -> None:
    """Application replay saves and restores no memory: what kernel replay stumbles over it may not."""
    listing = run_ncu(child("count", [job.name]), folder / f"{job.name}.csv", "application", seconds)
    job.take(listing.by_job([job.name]).get(job.name, []), listing.said)


def tell(job: Job, left: Callable[[], float]) -> None:
    print(
        f"{job.name}: {len(job.kernels)} kernels, {job.counted} counted, {job.matched} matched "
        f"{job.ways}, {DEADLINE_S - left():.0f} s",
        flush=True,
    )
    if job.share < FOUND:
        print(
            f"    without a count: {str(job.missing())[:800]}\n    ncu said: {job.ncu_said[-1200:]}",
            flush=True,
        )


def trace_jobs(folder: Path) -> dict[str, Job]:
    """All traces from one process; a job that came out without kernels gets a process of its own."""
    from dram_jobs import JOBS

    more = ("--size", "gpu", "--folder", str(folder))
    subprocess.run(child("trace", JOBS, *more), check=True)
    jobs = {}
    for name in JOBS:
        kernels = modelled_kernels(name, folder / f"{name}.json")
        if not kernels:
            subprocess.run(child("trace", [name], *more), check=True)
            kernels = modelled_kernels(name, folder / f"{name}.json")
        jobs[name] = Job(name, kernels)
    return jobs


def measure(folder: Path, everything: Path | None) -> int:
    """The whole benchmark on a GPU."""
    from findwall.machine.hardware import table_ceilings

    end = time.perf_counter() + DEADLINE_S
    jobs = trace_jobs(folder)
    print(f"traced and modelled, {DEADLINE_S - (end - time.perf_counter()):.0f} s", flush=True)
    about = json.loads((folder / "about.json").read_text())
    version = subprocess.run(["ncu", "--version"], capture_output=True, text=True, check=False).stdout
    about["ncu"] = version.strip().split("\n")[-1].strip()
    count_all(jobs, folder, lambda: end - time.perf_counter())
    kernels = [kernel for job in jobs.values() for kernel in job.kernels]
    groups = large(kernels, float(table_ceilings(about["gpu"]).l2_bytes or 60e6))
    drawn = draw(groups)
    summary = summarise(drawn, groups, jobs, about)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(summary, indent=1) + "\n")
    if everything is not None:
        everything.write_text(json.dumps([kernel.row() for kernel in kernels]))
    show(drawn, summary)
    return 0 if is_good(summary) else 1


SAMPLE = """==PROF== Profiling "k" - 0: 0%....100% - 1 pass
"ID","Kernel Name","Block Size","Grid Size","dram__bytes.sum"
"","","","","byte"
"0","at::cuda::<unnamed>::spin_kernel(long)","(1, 1, 1)","(1, 1, 1)","0"
"1","void a::<unnamed>::k<(int)2>(int)","(512, 1, 1)","(320, 1, 1)","1,024"
"2","void b::renamed<float>(float)","(64, 1, 1)","(7, 2, 1)","2048"
"3","void a::k<int>(int)","(512, 1, 1)","(9, 1, 1)","4096"
"4","void c::lost(int)","(512, 1, 1)","(9, 1, 1)","n/a"
"""


def rehearse() -> None:
    """Reading, cutting and aligning, on a listing as ncu prints it."""
    counts = Listing(read_counts(SAMPLE)).by_job(["one", "never reached"])["one"]
    assert [count.nbytes for count in counts] == [1024, 2048, 4096, None]
    traced = [
        Shape("void a::(anonymous namespace)::k<2>(int)", (320, 1, 1), (512, 1, 1)),
        Shape("_Z7mangledv", (7, 2, 1), (64, 1, 1)),
        Shape("void a::k<int>(int)", (8, 1, 1), (512, 1, 1)),
        Shape("never counted", (1, 1, 1), (1, 1, 1)),
    ]
    pairs, ways = align(traced[:3], [count.shape for count in counts[:3]])
    assert pairs == [(0, 0), (1, 1), (2, 2)]
    assert ways == {"name and launch": 1, "name": 1, "launch and place": 1}
    job = Job("one", [Kernel("one", shape.name, "", "", "copy", 1.0, 1e3, shape=shape) for shape in traced])
    job.take(counts, "")
    job.take(counts[:1], "a poorer second try")
    assert (job.matched, job.missing()) == (3, {"never counted": 1})
    job.kernels[0].modelled = 1000.0
    groups = large(job.kernels, 0.0)
    show(draw(groups), summarise(draw(groups), groups, {"one": job}, {}))


def prepare(folder: Path) -> int:
    """What can be tried without a GPU: the jobs run, their traces read, the parser parses."""
    from dram_jobs import JOBS

    assert sorted(name for group in GROUPS for name in group) == sorted(JOBS)
    run_traced("cpu", folder, [])
    for job in JOBS:
        print(f"{job}: trace of {(folder / f'{job}.json').stat().st_size} bytes,", end=" ")
        print(f"{len(modelled_kernels(job, folder / f'{job}.json'))} device kernels")
    rehearse()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--prepare", action="store_true", help="try all that needs no GPU")
    parser.add_argument("--all", type=Path, help="also write every kernel's figures here")
    parser.add_argument("--child", choices=("trace", "count"), help=argparse.SUPPRESS)
    parser.add_argument("--jobs", default="", help=argparse.SUPPRESS)
    parser.add_argument("--size", default="gpu", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    jobs = [name for name in asked.jobs.split(",") if name]
    if asked.child == "trace":
        run_traced(asked.size, asked.folder, jobs)
        return 0
    if asked.child == "count":
        run_counted(jobs)
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
