"""Verdicts on jobs seen from outside: recorded looks, and counters as an H200 gave them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from findwall.examine import examine
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.model.machine import Counters, CpuUse, Sampled, Telemetry
from findwall.model.measured_run import Rank, Run
from findwall.model.watched import ProcessUse, SeenStack, StackFrame, WatchedJob, WatchedRank
from findwall.report.terminal import to_text
from recorded_looks import stacks, texts

# SM, tensor pipe, fp32 pipe and DRAM in percent, as GPM reported them on an H200.
STARVED = Counters(sm=0.9, tensor=0.2, fp32=0.0, dram=0.3)
TINY_KERNELS = Counters(sm=2.8, tensor=0.2, fp32=0.0, dram=0.4)
FP32_MATMULS = Counters(sm=97.2, tensor=0.0, fp32=75.9, dram=10.7)
BF16_MATMULS = Counters(sm=87.0, tensor=84.0, fp32=1.0, dram=15.0)
HALF_IDLE = Counters(sm=50.0, tensor=20.0, fp32=0.0, dram=10.0)
SETTLE = "findwall run train.py"
OWN = "/home/user/job/train.py"
TORCH = "/opt/env/lib/python3.11/site-packages/torch"


def rank(job: str = "", gpm: Counters | None = None, number: int = 0, **told: object) -> Rank:
    """A rank that was seen as a recorded job was; on a GPU where it has counters."""
    seen = WatchedRank(
        100 + number,
        known_rank=number,
        stacks=stacks(job) if job else (),
        worker_stacks=stacks(job, "worker_dumps") if job == "two_stages" else (),
        workers=int(job == "two_stages"),
        texts=texts(job) if job else {},
        use=ProcessUse(cores=1.0, seconds=20.0),
    )
    kind = "cpu" if gpm is None else "gpu"
    return Rank(
        number=number,
        device_kind=kind,
        telemetry=Telemetry(gpm=gpm, samples=40),
        watched=replace(seen, **told),
    )


def job(*ranks: Rank, seconds: float = 20.0, **told: object) -> Run:
    looks = sum(stack.count for one in ranks[:1] if one.watched for stack in one.watched.stacks)
    watched = WatchedJob(100, seconds, looks=looks, settle=SETTLE)
    return Run("watch", ("process 100 (train.py)",), ranks, watched=replace(watched, **told))


def at(*frames: tuple[str, str], lock: bool = False, count: int = 30) -> SeenStack:
    return SeenStack(tuple(StackFrame(name, file, 7) for name, file in frames), lock, True, count)


def diagnosed(run: Run) -> Diagnosis:
    document = examine(run)
    assert from_json(to_json(document)) == document
    assert document.quality.checks_failed == {}
    assert document.step.ms is None and document.budget == []
    to_text(document)
    return document


@pytest.mark.parametrize(
    ("run", "cause", "line"),
    [
        (job(rank("starved_loader")), "loader-starved", "starved_loader.py:23"),
        (job(rank("two_stages")), "loader-starved", "two_stages.py:"),
        (job(rank("chatty_logger")), "host-work", "chatty_logger.py:20"),
        (job(rank("one_by_one")), "host-work", "one_by_one.py:17"),
        (job(rank("starved_loader", STARVED)), "loader-starved", "starved_loader.py:23"),
        (job(rank("chatty_logger", TINY_KERNELS)), "host-work", "chatty_logger.py:20"),
        (job(rank("compute", FP32_MATMULS)), "fast-path-off", ""),
        (job(rank("", FP32_MATMULS)), "fast-path-off", ""),
        (job(rank("compute", BF16_MATMULS)), "at-the-roof", ""),
    ],
)
def test_lines_and_counters_name_the_wall(run: Run, cause: str, line: str) -> None:
    document = diagnosed(run)
    assert document.wall.cause == cause
    assert line in document.wall.sentence


def test_a_read_is_the_wall_only_where_the_device_idles_meanwhile() -> None:
    """A host that is ahead waits at its one `item` for a device that works: that is no wall."""
    reading = {"stacks": (at(("main", OWN)),), "texts": {f"{OWN}:7": "total += loss.item()"}}
    assert diagnosed(job(rank("", STARVED, **reading))).wall.cause == "host-sync"
    assert diagnosed(job(rank("", BF16_MATMULS, **reading))).wall.cause == "at-the-roof"
    half = diagnosed(job(rank("", HALF_IDLE, **reading)))
    assert half.wall.cause is None and ["overhead", "host-sync"] in (half.wall.between or [])


def test_without_lines_nothing_about_the_host_is_claimed() -> None:
    wall = diagnosed(job(rank("", TINY_KERNELS))).wall
    assert wall.cause is None
    assert ["data", "loader-starved"] in (wall.between or [])
    assert "not for the loader" not in wall.sentence
    nothing = diagnosed(job(rank(""))).wall
    assert nothing.cause is None and nothing.between == [] and "uses no GPU" in nothing.sentence
    hidden = diagnosed(job(rank("", gpus=None))).wall
    assert "uses no GPU" not in hidden.sentence


def test_with_lines_the_loader_is_ruled_out() -> None:
    wall = diagnosed(job(rank("compute", TINY_KERNELS))).wall
    assert wall.between == [
        ["overhead", "launch-bound"],
        ["overhead", "host-sync"],
        ["data", "copy-exposed"],  # nobody counted what goes over the link
        ["comms", "exposed-collective"],  # it is a rank, and a collective keeps few multiprocessors busy
        ["comms", "straggler"],
    ]
    quiet = replace(rank("compute", replace(TINY_KERNELS, pcie_rx_mib_s=3.0)), number=0)
    alone = replace(quiet, watched=replace(quiet.watched or WatchedRank(0), known_rank=None))
    assert diagnosed(job(alone)).wall.between == [["overhead", "launch-bound"], ["overhead", "host-sync"]]
    assert "not for the loader" in wall.sentence and "compute.py:10" in wall.sentence


def test_a_busy_link_leaves_copies_possible() -> None:
    copying = replace(TINY_KERNELS, pcie_rx_mib_s=4000.0)
    assert ["data", "copy-exposed"] in (diagnosed(job(rank("compute", copying))).wall.between or [])


def test_cores_that_compute_get_no_verdict_but_the_command_that_finds_out() -> None:
    document = diagnosed(job(rank("compute")))
    assert document.wall.cause is None and document.wall.between == []
    assert document.watch is not None and document.watch.settle == SETTLE
    assert SETTLE in to_text(document)


def test_a_share_that_few_looks_show_is_not_proven() -> None:
    few = (
        at(("main", OWN), lock=True, count=7),
        at(("forward", f"{TORCH}/nn/modules/linear.py"), ("main", OWN), count=3),
    )
    many = tuple(replace(one, count=10 * one.count) for one in few)
    unsure = diagnosed(job(rank("", None, stacks=few))).wall
    assert unsure.cause is None and ["overhead", "host-work"] in (unsure.between or [])
    assert diagnosed(job(rank("", None, stacks=many))).wall.cause == "host-work"


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (job(rank("chatty_logger"), seconds=2.0), "2 s is too short"),
        (job(rank("chatty_logger"), is_stopped=True), "kill -CONT"),
        (
            job(rank("", None, stacks=(at(("find", "<frozen importlib._bootstrap>"), ("main", OWN)),))),
            "imports",
        ),
        (
            job(rank("", STARVED, stacks=(at(("c", f"{TORCH}/_dynamo/convert_frame.py"), ("main", OWN)),))),
            "compiles",
        ),
    ],
)
def test_a_job_that_still_sets_itself_up_is_looked_at_too_early(run: Run, said: str) -> None:
    wall = diagnosed(run).wall
    assert wall.cause is None and wall.too_early and said in wall.sentence


def test_others_on_the_gpu_may_be_the_ones_who_keep_it_busy() -> None:
    shared = rank("compute", BF16_MATMULS)
    shared = replace(shared, telemetry=replace(shared.telemetry, other_processes=2))
    document = diagnosed(job(shared))
    assert document.wall.cause is None and document.wall.between == [["compute", "at-the-roof"]]
    assert any("2 other processes" in note for note in document.notes)


def test_waiting_for_a_core_is_said() -> None:
    crowded = rank("chatty_logger")
    crowded = replace(crowded, telemetry=Telemetry(cpu=CpuUse(in_line_share=0.4)))
    assert any("40 %" in note for note in diagnosed(job(crowded)).notes)


def test_the_odd_rank_is_marked_and_speaks() -> None:
    ranks = [rank("compute", BF16_MATMULS, number) for number in range(4)]
    ranks[2] = rank("starved_loader", STARVED, 2)
    document = diagnosed(job(*ranks))
    assert document.watch is not None
    assert [bool(row.odd) for row in document.watch.ranks] == [False, False, True, False]
    assert document.wall.cause == "loader-starved" and document.wall.sentence.startswith("Rank 2 differs")
    drawn = to_text(document)
    assert any(line.startswith("> 2") for line in drawn.splitlines())
    assert drawn.count("compute.py:10") >= 3


def test_the_gpus_of_all_ranks_are_counted_once_each() -> None:
    ranks = [rank("compute", BF16_MATMULS, number, gpu=f"GPU-{number // 2}") for number in range(4)]
    assert diagnosed(job(*ranks)).machine.count == 2
    assert diagnosed(job(rank("compute", BF16_MATMULS))).machine.count is None


def test_of_three_ranks_one_can_be_odd() -> None:
    ranks = [rank("compute", None, 0), rank("chatty_logger", None, 1), rank("compute", None, 2)]
    document = diagnosed(job(*ranks))
    assert document.watch is not None
    assert [bool(row.odd) for row in document.watch.ranks] == [False, True, False]
    assert document.wall.cause == "host-work" and document.wall.sentence.startswith("Rank 1 differs")


def test_a_rank_that_sleeps_in_its_ops_waits_for_others() -> None:
    asleep = SeenStack(
        (StackFrame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 9),), False, False, 40
    )
    wall = diagnosed(job(rank("", None, stacks=(asleep,)))).wall
    assert ["comms", "straggler"] in (wall.between or []) and "sleeps inside ops" in wall.sentence


def test_a_slower_clock_makes_a_rank_odd() -> None:
    ranks = [rank("compute", BF16_MATMULS, number) for number in range(4)]
    clocks = [Sampled(mhz, mhz, mhz) for mhz in (1980.0, 1350.0, 1975.0, 1980.0)]
    ranks = [
        replace(one, telemetry=replace(one.telemetry, sm_clock_mhz=clock))
        for one, clock in zip(ranks, clocks, strict=True)
    ]
    watch = diagnosed(job(*ranks)).watch
    assert watch is not None
    assert [row.odd for row in watch.ranks] == ["", "its clock is 1350 MHz, the others' 1980", "", ""]


@pytest.mark.parametrize("count", [2, 8])
def test_ranks_that_are_alike_have_no_odd_one(count: int) -> None:
    watch = diagnosed(job(*(rank("chatty_logger", TINY_KERNELS, number) for number in range(count)))).watch
    assert watch is not None and not any(row.odd for row in watch.ranks)
