"""The document of a job that ran already: what counters and Python lines support, seen from outside.

The rules are those of a run without a trace. Its hooks time the waits; here looks at the stacks count them,
and a share counts as large as the looks prove it to be, which is less than what was seen.
"""

from __future__ import annotations

import msgspec

from findwall.attribute.conditions import held_down
from findwall.attribute.stacks import Doing, Doings, Spot, doings, is_worker
from findwall.examine.counters import (
    CounterVerdict,
    Wait,
    Whole,
    counters_of,
    judge,
)
from findwall.examine.odd_rank import DOES, odd_ranks
from findwall.examine.rows import machine, memory
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEARLY_ALL, WALL_OF, WORTH_IT
from findwall.model.diagnosis import (
    SCHEMA,
    Diagnosis,
    Mfu,
    Quality,
    Question,
    Source,
    Step,
    TimelineSummary,
    Wall,
    Watch,
    WatchedLine,
    WatchedRow,
)
from findwall.model.machine import Ceilings
from findwall.model.run import Rank, Run
from findwall.model.watched import WatchedJob, WatchedRank
from findwall.units import GIB, format_share

# All chosen by hand, not calibrated.
TOO_SHORT_S = 3.0  # with a handful of looks and samples nothing is proven
COPIES_MIB_S = 500.0  # to the device: with less, copies cannot fill much of the time, pageable ones neither
LINES_LISTED = 12
WHOLE = Whole(shown_by="`findwall run`")
NOTHING_SEEN = WatchedRank(0)


def diagnose_watched(run: Run, ceilings: Ceilings) -> Diagnosis:
    """What can be said of the job now."""
    job = run.watched or WatchedJob(0, 0.0)
    seen = [doings((rank.watched or NOTHING_SEEN).stacks, _texts(rank)) for rank in run.ranks]
    odd = odd_ranks(run.ranks, seen)
    at = next(iter(odd), 0)
    speaker, found = (run.ranks[at], seen[at]) if run.ranks else (Rank(), doings((), {}))
    verdict, too_early = _judge(job, speaker, found)
    return Diagnosis(
        schema=SCHEMA,
        source=Source(run.kind, list(run.paths), len(run.ranks)),
        machine=msgspec.structs.replace(machine(run, ceilings), count=_devices(run)),
        step=Step(None, None, None, "estimated", None, None, None, None, 0, 0, None),
        questions=_questions(verdict.busy),
        wall=_wall(verdict, too_early, speaker, odd.get(at, "")),
        timeline=TimelineSummary(None, None, None, None, None, []),
        quality=Quality(0, 0, 0, 0, False, None),
        budget=[],
        phases=[],
        memory=memory(run, None),
        prescriptions=[],
        not_worth_it=[],
        mfu=Mfu(None, None, None, None, "no device events"),
        throughput=None,
        kernels=[],
        trials=[],
        notes=[*run.notes, *_notes(job, speaker, found, verdict)],
        watch=Watch(
            seconds=job.seconds,
            looks=job.looks,
            missed=job.missed,
            settle=job.settle,
            ranks=[
                _row(rank, one, odd.get(number, ""))
                for number, (rank, one) in enumerate(zip(run.ranks, seen, strict=True))
            ],
            lines=_lines(speaker, found),
            has_ended=job.has_ended,
        ),
    )


# -- the verdict -----------------------------------------------------------------------------------


def _judge(job: WatchedJob, rank: Rank, found: Doings) -> tuple[CounterVerdict, bool]:
    """The verdict, and whether it may be another one once the job has run for a while."""
    gpm = counters_of(rank)
    busy = None if gpm.sm is None else gpm.sm / 100.0
    early = _stopped(job) or _too_early(job, found)
    if early:
        return CounterVerdict(None, (), early, busy), True
    idle = 1.0 if busy is None else 1.0 - busy
    loader = found.of("loader")
    knows_loader = found.looks > 0 and loader.high < MAJORITY_SHARE * idle
    verdict = judge(rank, WHOLE, _waits(rank, found, idle), knows_loader)
    if verdict is None:
        return _by_lines(rank, found), False
    if verdict.cause in ("at-the-roof", "fast-path-off") and rank.telemetry.other_processes:
        text = f"{verdict.sentence} Other processes use this GPU too, so that may be their work."
        return msgspec.structs.replace(verdict, cause=None, between=(verdict.cause,), sentence=text), False
    return (_narrowed(verdict, rank, found, idle) if verdict.cause is None else verdict), False


def _stopped(job: WatchedJob) -> str:
    """Its lines are where it was stopped, and say nothing of where it spends its time."""
    if not job.is_stopped:
        return ""
    return "The job is stopped (SIGSTOP, or a debugger holds it): kill -CONT lets it go on. Then watch it."


def _too_early(job: WatchedJob, found: Doings) -> str:
    looks = found.looks + found.starting
    if looks and found.starting >= MAJORITY_SHARE * looks:
        return "The job still imports its modules, so nothing is known yet. Watch it once it trains."
    compiling = found.of("compiles")
    if compiling.low >= FAIR_PART:
        return (
            f"torch.compile compiles in {format_share(compiling.share)} of the looks ({_place(compiling)}). "
            "Watch the job once that is done; if it never is, its shapes or values change from step to step."
        )
    if job.seconds < TOO_SHORT_S:
        return f"{job.seconds:.0f} s is too short to tell. Watch the job for 20 s."
    return ""


def _waits(rank: Rank, found: Doings, idle: float) -> list[Wait]:
    """What the looks prove of waiting, the longest first."""
    waits = [Wait("loader-starved", found.of("loader").low, _about_loader(rank, found))]
    work = _host_work(rank, found)
    waits.append(Wait("host-work", work.low, _about_work(work)))
    reads = found.of("reads")
    if rank.device_kind == "gpu" and reads.share:
        # While it reads, the host waits for a device that works: only what idles meanwhile is its doing.
        waits.append(Wait("host-sync", max(reads.low + idle - 1.0, 0.0), _about_reads(reads)))
    return sorted(waits, key=lambda wait: -wait.share)


def _host_work(rank: Rank, found: Doings) -> Doing:
    """Python with no op under it. Cores have nothing that a read could wait for."""
    return found.of("python", "reads") if rank.device_kind == "cpu" else found.of("python")


def _about_loader(rank: Rank, found: Doings) -> str:
    loader = found.of("loader")
    watched = rank.watched or NOTHING_SEEN
    seen = f"In {format_share(loader.share)} of {found.looks} looks the job"
    if not watched.worker_stacks:
        return (
            f"{seen} makes its next batch in the training process, most often at {_place(loader)}. Let "
            "loader workers make it (num_workers), or make that line faster."
        )
    made = doings((stack for stack in watched.worker_stacks if is_worker(stack)), watched.texts)
    return (
        f"{seen} waits for its next batch. Its loader workers ({watched.workers}) are most often at "
        f"{_place(_own_work(made))}. Make that line faster, or give the DataLoader more workers."
    )


def _about_work(work: Doing) -> str:
    spot = work.spots[0][0] if work.spots else None
    action = "Do it less often, or move it out of the step."
    if spot is not None and spot.doing == "reads":
        action = "Read numbers less often, and all at once (tensor.tolist()), not one by one."
    return (
        f"In {format_share(work.share)} of the looks the job runs Python and no op, most often at "
        f"{_place(work)}. {action}"
    )


def _about_reads(reads: Doing) -> str:
    return (
        f"In {format_share(reads.share)} of the looks the host waits for a value from the device, most often "
        f"at {_place(reads)}, while the device has little to do. Read it less often."
    )


def _by_lines(rank: Rank, found: Doings) -> CounterVerdict:
    """Without counters and without a wait that explains the time: what it lies between."""
    if not found.looks:
        return CounterVerdict(None, (), _nothing_known(rank), None)
    waits = {"loader-starved": found.of("loader"), "host-work": _host_work(rank, found)}
    talk = found.of("collective")
    asleep = found.of("waits").high >= FAIR_PART  # for whom is not known: batches may come that way too
    between = [cause for cause, one in waits.items() if one.high >= FAIR_PART or asleep]
    # A thread that sleeps inside an op waits for other threads; among ranks, most likely for other ranks.
    talks = talk.high >= FAIR_PART
    talks |= _is_one_of_many(rank) and found.of("stalls").low >= FAIR_PART
    between += ["exposed-collective", "straggler"] if talks else []
    most = max(DOES, key=lambda name: found.of(name).share)
    one = found.of(most)
    text = f"In {format_share(one.share)} of {found.looks} looks the job {DOES[most]}"
    why = "From outside, nothing tells what its ops wait for"
    if rank.device_kind == "gpu":
        why = "This GPU gave no counters (GPM needs Hopper or later, and a driver that allows it)"
    return CounterVerdict(
        None,
        tuple(between),
        f"{text}, most often at {_place(one)}. {why}: {WHOLE.shown_by} would show it.",
        None,
    )


def _is_one_of_many(rank: Rank) -> bool:
    return rank.watched is not None and rank.watched.known_rank is not None


def _nothing_known(rank: Rank) -> str:
    if rank.device_kind == "gpu" or (rank.watched or NOTHING_SEEN).gpus is None:
        return "Neither counters nor Python lines are known, so no wall can be named."
    return "The job uses no GPU and its Python lines are unknown, so no wall can be named."


def _narrowed(verdict: CounterVerdict, rank: Rank, found: Doings, idle: float) -> CounterVerdict:
    """What the counters leave open, less what the looks rule out; and where the host was most often."""
    kept = verdict.between
    if "host-sync" in kept:  # the device waits, and for the host only if for nobody else
        copied = counters_of(rank).pcie_rx_mib_s
        kept += ("copy-exposed",) if copied is None or copied >= COPIES_MIB_S else ()
        # A collective keeps few of the multiprocessors busy, and the host issues it long before.
        kept += ("exposed-collective", "straggler") if _is_one_of_many(rank) else ()
    if not found.looks:
        return msgspec.structs.replace(verdict, between=kept)
    if found.of("python", "waits").high < MAJORITY_SHARE * idle:
        kept = tuple(cause for cause in kept if cause != "host-work")
    if found.of("collective").high >= FAIR_PART:
        kept = (*kept, "exposed-collective", "straggler")
    every = found.all()
    text = f"{verdict.sentence} The host is most often at {_place(every)}."
    return msgspec.structs.replace(verdict, between=kept, sentence=text)


def _wall(verdict: CounterVerdict, too_early: bool, rank: Rank, odd: str) -> Wall:
    named = f"Rank {rank.number} differs from the others ({odd}). " if odd else ""
    if verdict.cause is not None:
        return Wall(WALL_OF[verdict.cause], verdict.cause, named + verdict.sentence)
    between = [[WALL_OF[cause], cause] for cause in dict.fromkeys(verdict.between)]
    return Wall(None, None, named + verdict.sentence, None, between, too_early)


def _place(doing: Doing) -> str:
    return _told(doing.spots[0][0]) if doing.spots else "an unknown line"


def _told(spot: Spot) -> str:
    function = "" if spot.function in ("<module>", "") else f" in {spot.function}"
    return f"{spot.place}{function}"


def _own_work(made: Doings) -> Doing:
    """What loader workers do, without their waiting for the next order."""
    return made.of("loader")


# -- rows ------------------------------------------------------------------------------------------


def _devices(run: Run) -> int | None:
    """How many GPUs the ranks use; None where that is not known, or where they use none."""
    used = {rank.watched.gpu for rank in run.ranks if rank.watched is not None and rank.watched.gpu}
    return len(used) or None


def _texts(rank: Rank) -> dict[str, str]:
    return (rank.watched or NOTHING_SEEN).texts


def _questions(busy: float | None) -> list[Question]:
    nothing = "Seen from outside: no steps, and no device events."
    answer = Question("busy", "unknown", None, "No counters were read.")
    if busy is not None:
        text = f"Counters see work on the multiprocessors {format_share(busy)} of the time."
        answer = Question("busy", "yes" if busy >= NEARLY_ALL else "no", busy, text)
    return [
        Question("stable", "unknown", None, nothing),
        answer,
        Question("matmul", "unknown", None, nothing),
        Question("peak", "unknown", None, nothing),
    ]


def _notes(job: WatchedJob, rank: Rank, found: Doings, verdict: CounterVerdict) -> list[str]:
    notes = []
    waited = rank.telemetry.cpu.in_line_share if rank.telemetry.cpu is not None else None
    if waited is not None and waited >= WORTH_IT:
        notes.append(
            f"For {format_share(waited)} of the time the job's thread waited for a core that others "
            "used, so part of what is seen on the host may be their doing."
        )
    notes += [f"{note}." for note in rank.telemetry.notes]
    held = held_down(rank)
    if held is not None:
        notes.append(f"{held}.")
    if rank.telemetry.other_processes:
        others = rank.telemetry.other_processes
        notes.append(
            f"{others} other process{'es' * (others > 1)} on this GPU: its counters are of all of them."
        )
    if verdict.cause == "host-work":
        notes.append(
            "A pause of the garbage collector counts to the line that it falls in; `findwall run` times it."
        )
    if job.missed > job.looks:
        notes.append(f"{job.missed} of {job.missed + job.looks} looks at the Python line failed.")
    other = rank.watched.other_thread if rank.watched is not None else ""
    if other:
        notes.append(f"The main thread only waits, so the lines are of the thread {other}.")
    if found.looks and any(is_worker(stack) for stack in (rank.watched or NOTHING_SEEN).stacks):
        notes.append("This process is a loader worker: watch the process that started it.")
    return notes


def _row(rank: Rank, found: Doings, odd: str) -> WatchedRow:
    seen, told = rank.watched or NOTHING_SEEN, rank.telemetry
    gpm = counters_of(rank)
    spots = found.all().spots
    return WatchedRow(
        rank=seen.known_rank,
        pid=seen.pid,
        gpu=seen.gpu,
        sm_share=_share(gpm.sm),
        tensor_share=_share(gpm.tensor),
        dram_share=_share(gpm.dram),
        power_w=told.power_w.mean if told.power_w else None,
        sm_clock_mhz=told.sm_clock_mhz.mean if told.sm_clock_mhz else None,
        memory_gib=told.memory_used / GIB if told.memory_used is not None else None,
        pcie_to_gpu_mib_s=gpm.pcie_rx_mib_s,
        pcie_from_gpu_mib_s=gpm.pcie_tx_mib_s,
        throttle=told.throttle,
        other_processes=told.other_processes,
        cores=seen.use.cores,
        workers=seen.workers,
        in_line_share=seen.use.in_line_share,
        read_mib_s=seen.use.read_mib_s,
        write_mib_s=seen.use.write_mib_s,
        doing=found.shares(),
        line=spots[0][0].place if spots else None,
        odd=odd,
    )


def _share(percent: float | None) -> float | None:
    return None if percent is None else min(percent / 100.0, 1.0)


def _lines(rank: Rank, found: Doings) -> list[WatchedLine]:
    """Where the speaker's thread and its workers were, most often first."""
    seen = rank.watched or NOTHING_SEEN
    made = doings((stack for stack in seen.worker_stacks if is_worker(stack)), seen.texts)
    rows = [
        WatchedLine("host", spot.doing, spot.place, spot.function, share, spot.inside)
        for spot, share in found.all().spots[:LINES_LISTED]
    ]
    return rows + [
        WatchedLine("worker", spot.doing, spot.place, spot.function, share, spot.inside)
        for spot, share in made.all().spots[:LINES_LISTED]
    ]
