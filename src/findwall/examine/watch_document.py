"""The document of a job that ran already: what counters and Python lines support, seen from outside.

The rules are those of a run without a trace. Its hooks time the waits; here looks at the stacks count them,
and a share counts as large as the looks prove it to be, which is less than what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from findwall.examine.document_rows import counted_busy, machine, totals, without_step
from findwall.examine.untraced_document import CounterVerdict, Wait, Whole, counters_of, judge
from findwall.model.answers.watch_answer import Watch, WatchedLine, WatchedRow
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, NEARLY_ALL, WALL_OF, WORTH_IT
from findwall.model.claims import Claim, Figure, advises, known, lines, plain
from findwall.model.diagnosis import Diagnosis, Question, Wall
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Rank, Run
from findwall.model.watched import WatchedJob, WatchedRank
from findwall.step.timed_steps import holding_down
from findwall.units import GIB
from findwall.watch.thread_calls import Doing, Doings, Spot, doings, is_worker

# All chosen by hand, not calibrated.
TOO_SHORT_S = 3.0  # with a handful of looks and samples nothing is proven
COPIES_MIB_S = 500.0  # to the device: with less, copies cannot fill much of the time, pageable ones neither
LINES_LISTED = 12
WHOLE = Whole(watched=True)
NOTHING_SEEN = WatchedRank(0)


def diagnose_watched(run: Run, ceilings: Ceilings) -> Diagnosis:
    """What can be said of the job now."""
    job = run.watched or WatchedJob(0, 0.0)
    seen = [doings(one.stacks, one.texts) for one in (rank.watched or NOTHING_SEEN for rank in run.ranks)]
    odd = odd_ranks(run.ranks, seen)
    at = next(iter(odd), 0)
    speaker, found = (run.ranks[at], seen[at]) if run.ranks else (Rank(), doings((), {}))
    verdict, too_early = _judge(job, speaker, found)
    return msgspec.structs.replace(
        without_step(run, ceilings, "no device events"),
        machine=msgspec.structs.replace(machine(run, ceilings), count=_devices(run)),
        questions=_questions(verdict.busy),
        wall=_wall(verdict, too_early, speaker, odd.get(at)),
        memory=totals(run),
        remarks=[*map(plain, run.notes), *_notes(job, speaker, found, verdict)],
        watch=Watch(
            seconds=job.seconds,
            looks=job.looks,
            missed=job.missed,
            settle=job.settle,
            ranks=[
                _row(rank, one, odd.get(number))
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
    early = _too_early(job, found)
    if early is not None:
        return CounterVerdict(None, (), early, busy), True
    idle = 1.0 if busy is None else 1.0 - busy
    knows_loader = found.looks > 0 and found.of("loader").high < MAJORITY_SHARE * idle
    verdict = judge(rank, WHOLE, _waits(rank, found, idle), knows_loader)
    if verdict is None:
        return _by_lines(rank, found), False
    if verdict.cause in ("at-the-roof", "fast-path-off") and rank.telemetry.other_processes:
        both = Claim("sentences", parts=[verdict.claim, Claim("watched/others-use-it")])
        return msgspec.structs.replace(verdict, cause=None, between=(verdict.cause,), claim=both), False
    return (_narrowed(verdict, rank, found, idle) if verdict.cause is None else verdict), False


def _too_early(job: WatchedJob, found: Doings) -> Claim | None:
    if job.is_stopped:  # its lines are where it was stopped, and say nothing of where it spends its time
        return Claim("watched/stopped")
    looks = found.looks + found.starting
    if looks and found.starting >= MAJORITY_SHARE * looks:
        return Claim("watched/imports")
    compiling = found.of("compiles")
    if compiling.low >= FAIR_PART:
        return Claim("watched/compiles", {"seen_share": compiling.share}, parts=[_place(compiling)])
    return Claim("watched/too-short", {"seconds": job.seconds}) if job.seconds < TOO_SHORT_S else None


def _waits(rank: Rank, found: Doings, idle: float) -> list[Wait]:
    """What the looks prove of waiting, the longest first."""
    waits = [Wait("loader-starved", found.of("loader").low, _about_loader(rank, found))]
    work = _host_work(rank, found)
    waits.append(Wait("host-work", work.low, _about_work(work)))
    reads = found.of("reads")
    if rank.device_kind == "gpu" and reads.share:
        # While it reads, the host waits for a device that works: only what idles meanwhile is its doing.
        about = Claim("watched/reads", {"seen_share": reads.share}, parts=[_place(reads)])
        waits.append(Wait("host-sync", max(reads.low + idle - 1.0, 0.0), about))
    return sorted(waits, key=lambda wait: -wait.share)


def _host_work(rank: Rank, found: Doings) -> Doing:
    """Python with no op under it. Cores have nothing that a read could wait for."""
    return found.of("python", "reads") if rank.device_kind == "cpu" else found.of("python")


def _about_loader(rank: Rank, found: Doings) -> Claim:
    loader = found.of("loader")
    watched = rank.watched or NOTHING_SEEN
    figures: dict[str, Figure] = {"seen_share": loader.share, "looks": found.looks}
    if not watched.worker_stacks:
        return Claim("watched/loader-itself", figures, parts=[_place(loader)])
    made = doings((stack for stack in watched.worker_stacks if is_worker(stack)), watched.texts)
    where = _place(made.of("loader"))  # without their waiting for the next order
    return Claim("watched/loader-workers", {**figures, "have": watched.workers}, parts=[where])


def _about_work(work: Doing) -> Claim:
    reads = bool(work.spots) and work.spots[0][0].doing == "reads"
    return Claim("watched/python", {"seen_share": work.share, "reads": reads}, parts=[_place(work)])


def _by_lines(rank: Rank, found: Doings) -> CounterVerdict:
    """Without counters and without a wait that explains the time: what it lies between."""
    if not found.looks:
        on_gpu = rank.device_kind == "gpu" or (rank.watched or NOTHING_SEEN).gpus is None
        return CounterVerdict(None, (), Claim("watched/nothing-known", {"on_gpu": on_gpu}), None)
    waits = {"loader-starved": found.of("loader"), "host-work": _host_work(rank, found)}
    talk = found.of("collective")
    asleep = found.of("waits").high >= FAIR_PART  # for whom is not known: batches may come that way too
    between = [cause for cause, one in waits.items() if one.high >= FAIR_PART or asleep]
    # A thread that sleeps inside an op waits for other threads; among ranks, most likely for other ranks.
    talks = talk.high >= FAIR_PART
    talks |= _is_one_of_many(rank) and found.of("stalls").low >= FAIR_PART
    between += ["exposed-collective", "straggler"] if talks else []
    most = max(TOLD, key=lambda name: found.of(name).share)
    one = found.of(most)
    figures: dict[str, Figure] = {
        "doing": most,
        "seen_share": one.share,
        "looks": found.looks,
        "on_gpu": rank.device_kind == "gpu",
    }
    return CounterVerdict(None, tuple(between), Claim("watched/by-lines", figures, parts=[_place(one)]), None)


def _is_one_of_many(rank: Rank) -> bool:
    return rank.watched is not None and rank.watched.known_rank is not None


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
    both = Claim("sentences", parts=[verdict.claim, Claim("watched/host-at", parts=[_place(found.all())])])
    return msgspec.structs.replace(verdict, between=kept, claim=both)


def _wall(verdict: CounterVerdict, too_early: bool, rank: Rank, odd: Claim | None) -> Wall:
    claim = verdict.claim
    if odd is not None:
        differs = Claim("watched/differs", {"rank": rank.number}, parts=[odd])
        claim = Claim("sentences", parts=[differs, claim])
    if verdict.cause is not None:
        return Wall(WALL_OF[verdict.cause], verdict.cause, claim=claim, advises=advises(claim))
    between = [[WALL_OF[cause], cause] for cause in dict.fromkeys(verdict.between)]
    return Wall(None, None, "", None, between, too_early, claim, why_not=verdict.claim.id)


def _place(doing: Doing) -> Claim:
    return _told(doing.spots[0][0]) if doing.spots else Claim("watched/unknown-line")


def _told(spot: Spot) -> Claim:
    function = "" if spot.function == "<module>" else spot.function
    return Claim("watched/line", names=known(function=function), places=lines(spot.place))


# -- rows ------------------------------------------------------------------------------------------


def _devices(run: Run) -> int | None:
    """How many GPUs the ranks use; None where that is not known, or where they use none."""
    used = {rank.watched.gpu for rank in run.ranks if rank.watched is not None and rank.watched.gpu}
    return len(used) or None


def _questions(busy: float | None) -> list[Question]:
    nothing = Claim("nothing/from-outside")
    return [
        Question("stable", "unknown", None, claim=nothing),
        counted_busy(busy, Claim("nothing/no-counters")),
        Question("matmul", "unknown", None, claim=nothing),
        Question("peak", "unknown", None, claim=nothing),
    ]


def _notes(job: WatchedJob, rank: Rank, found: Doings, verdict: CounterVerdict) -> list[Claim]:
    waited = rank.telemetry.cpu.in_line_share if rank.telemetry.cpu is not None else None
    held, others = holding_down(rank), rank.telemetry.other_processes
    seen = rank.watched or NOTHING_SEEN
    works = found.looks > 0 and any(is_worker(stack) for stack in seen.stacks)
    looks: dict[str, Figure] = {"missed": job.missed, "looks": job.missed + job.looks}
    every = [
        Claim("watched/in-line", {"waited_share": waited}) if (waited or 0.0) >= WORTH_IT else None,
        *(plain(f"{note}.") for note in rank.telemetry.notes),
        Claim("watched/held-down", parts=[held]) if held is not None else None,
        Claim("watched/other-processes", {"others": others}) if others else None,
        Claim("watched/collector") if verdict.cause == "host-work" else None,
        Claim("watched/missed", looks) if job.missed > job.looks else None,
        Claim("watched/other-thread", names={"thread": seen.other_thread}) if seen.other_thread else None,
        Claim("watched/is-worker") if works else None,
    ]
    return [note for note in every if note is not None]


def _row(rank: Rank, found: Doings, odd: Claim | None) -> WatchedRow:
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
        claim=odd,
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


# -- the rank that is not like the others: the one to look at ---------------------------------------------


FEWEST_RANKS = 3  # of two, nobody can say which is the odd one

# What a rank may do far more often than the others.
TOLD = ("ops", "stalls", "python", "loader", "collective", "reads", "waits")


def odd_ranks(ranks: Sequence[Rank], seen: Sequence[Doings]) -> dict[int, Claim]:
    """By their place in the list, those that differ from all others together, and in what."""
    if len(ranks) < FEWEST_RANKS:
        return {}
    found = {}
    for at in range(len(ranks)):
        why = _by_clock(ranks, at) or _by_looks(seen, at) or _by_counters(ranks, at)
        if why is not None:
            found[at] = why
    # Where many differ there is no rule to differ from.
    return found if len(found) < MAJORITY_SHARE * len(ranks) else {}


def _by_clock(ranks: Sequence[Rank], at: int) -> Claim | None:
    clocks = [rank.telemetry.sm_clock_mhz for rank in ranks]
    own = clocks[at]
    others = [clock.mean for number, clock in enumerate(clocks) if clock is not None and number != at]
    if own is None or not others or own.mean >= NEARLY_ALL * median(others):
        return None
    return Claim("odd/clock", {"own_mhz": own.mean, "others_mhz": median(others)})


def _by_looks(seen: Sequence[Doings], at: int) -> Claim | None:
    """Something that it does, or leaves, far more often than the middle of the others, beyond chance."""
    others = [one for number, one in enumerate(seen) if number != at and one.looks]
    if not seen[at].looks or not others:
        return None
    for doing in sorted(TOLD, key=lambda name: -seen[at].of(name).share):
        own = seen[at].of(doing)
        every = sorted((one.of(doing) for one in others), key=lambda one: one.share)
        usual = every[(len(every) - 1) // 2 : len(every) // 2 + 1]  # of an even number, the two in the middle
        if all(_is_apart(own, one) for one in usual):
            figures: dict[str, Figure] = {
                "doing": doing,
                "own_share": own.share,
                "others_share": usual[0].share,
            }
            return Claim("odd/looks", figures, places=lines(own.spots[0][0].place if own.spots else None))
    return None


def _is_apart(own: Doing, other: Doing) -> bool:
    beyond_chance = own.low > other.high or own.high < other.low
    return beyond_chance and abs(own.share - other.share) >= FAIR_PART


def _by_counters(ranks: Sequence[Rank], at: int) -> Claim | None:
    busy = [rank.telemetry.gpm.sm if rank.telemetry.gpm is not None else None for rank in ranks]
    own = busy[at]
    others = [share for number, share in enumerate(busy) if share is not None and number != at]
    if own is None or not others or abs(own - median(others)) < 100 * FAIR_PART:
        return None
    return Claim("odd/counters", {"own": own, "others": median(others)})
