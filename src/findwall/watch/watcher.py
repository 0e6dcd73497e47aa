"""The watch: twice a second what the job takes, once a second where its threads are, and a Run made of that.

Nothing here touches the job: /proc and NVML are read, and py-spy reads its memory.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, deque
from pathlib import Path

import msgspec

from findwall.machine.ceilings.numpy_cores import core_name
from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL, SMALL_PART
from findwall.model.machine import NO_TELEMETRY, CpuUse, Telemetry
from findwall.model.measured_run import Rank, Run
from findwall.model.watched import ProcessUse, SeenStack, WatchedJob, WatchedRank
from findwall.watch import job_processes as found_processes
from findwall.watch import spy, usage
from findwall.watch.gpus import Board, GpuList, Share, gpus_of, list_gpus
from findwall.watch.job_processes import PROC, Process, helpers_of, ranks_of
from findwall.watch.seen_lines import Sources

USE_PERIOD_S = 0.5
LOOK_PERIOD_S = 1.0
# Twenty looks leave a share of 80 % as uncertain as 58 to 92 %, which names nothing: at first they come more
# often, if they cost no more than so much of all cores, or of one core where there are few.
FIRST_S, FIRST_LOOK_PERIOD_S = 30.0, 0.3
SPY_SHARE, SPY_CORES = 0.01, 0.05
JITTER_SHARE = 0.3  # of the period: a job whose steps take as long is not always met in the same place
TREE_PERIOD_S = 5.0  # loader workers come and go with the epochs
KEPT_S = 300.0  # what is older says little about the job as it runs now
MOST_LOOKS = 300
MOST_RANKS_PER_LOOK = 8  # they take turns: a look costs some hundredths of a second of one core
STOPPED = ("T", "t")  # by a signal, by a debugger
_WORKER_LOOP = ("_worker_loop", "torch/utils/data/_utils/worker.py")
_SPAWNED = ("_wrap", "torch/multiprocessing/spawn.py")
_IN_LOADER = "torch/utils/data/"


class _Watched:
    """One process that is looked at, and what was seen."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.looks: deque[list[spy.ThreadStack]] = deque(maxlen=MOST_LOOKS)
        self.uses: deque[ProcessUse] = deque(maxlen=round(KEPT_S / USE_PERIOD_S))
        self.last: usage.Totals | None = None
        self.texts: dict[str, str] = {}  # of lines it was seen on: read while it lives

    def is_in(self, place: tuple[str, str]) -> bool:
        """Whether its latest stacks are inside a function of a file."""
        return bool(self.looks) and any(
            frame.function == place[0] and frame.file.endswith(place[1])
            for thread in self.looks[-1]
            for frame in thread.stack.frames
        )


class Watcher:
    """Looks at one job until it ends."""

    def __init__(self, pid: int, spy_path: str | None = "", proc: Path = PROC) -> None:
        """`spy_path`: where py-spy is; empty: it is looked for; None: it is not there."""
        self._proc = proc
        self._root = found_processes.root_process(pid, proc)
        self._spy = spy.find_spy() if spy_path == "" else spy_path
        self.why_no_lines = "" if self._spy else spy.NOT_INSTALLED
        self._processes: list[Process] = []
        self._ranks: list[Process] = []
        self._starters: list[
            Process
        ] = []  # the same, as long as no stack shows that they only started others
        self._spawned: set[int] = set()
        self._seen: dict[tuple[int, int], _Watched] = {}
        self._sources: dict[int, Sources] = {}
        self._board = Board()
        self._gpus = GpuList()
        self._shares: dict[int, Share] = {}
        self._turn = 0
        self._looks = self._missed = 0
        self._counts = self._stops = 0
        self._began = self._next_use = self._next_look = self._next_tree = time.monotonic()
        self._stopped_at: float | None = None
        self.has_ended = False
        self._find()

    # -- the loop ------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return (self._stopped_at or time.monotonic()) - self._began

    @property
    def words(self) -> tuple[str, ...]:
        """The command line that started the job, as its first Python process has it."""
        return self._starter.words

    @property
    def _starter(self) -> Process:
        return next((one for one in self._processes if one.is_python), self._root)

    @property
    def folder(self) -> Path | None:
        """Where it was started."""
        try:
            return (self._proc / str(self._starter.pid) / "cwd").readlink()
        except OSError:
            return None

    def tick(self) -> None:
        """Do what is due, then wait until the next is."""
        now = time.monotonic()
        if not found_processes.is_alive(self._root, self._proc):
            self.has_ended, self._stopped_at = True, now
            return
        if now >= self._next_tree:
            self._find()
            if self.has_ended:
                self._stopped_at = now
                return
        if now >= self._next_use:
            self._count()
            self._next_use = now + USE_PERIOD_S
        if now >= self._next_look:
            before = _spent_on_children()
            self._look()
            self._next_look = now + self._pause(_spent_on_children() - before)
        due = min(self._next_tree, self._next_use, self._next_look)
        time.sleep(min(max(due - time.monotonic(), 0.01), USE_PERIOD_S))

    def _pause(self, cost_s: float) -> float:
        """From one look to the next, as the last one cost so much CPU time."""
        period = LOOK_PERIOD_S
        if self.seconds < FIRST_S:
            allowed = max(SPY_SHARE * (os.cpu_count() or 1), SPY_CORES)
            period = min(max(FIRST_LOOK_PERIOD_S, cost_s / allowed), LOOK_PERIOD_S)
        return period * random.uniform(1 - JITTER_SHARE, 1 + JITTER_SHARE)

    def stop(self) -> None:
        self._stopped_at = self._stopped_at or time.monotonic()
        self._board.stop()

    # -- looking -------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Who there is, who trains, and on which GPUs."""
        self._next_tree = time.monotonic() + TREE_PERIOD_S
        found = found_processes.tree(self._root, self._processes, self._proc)
        if self._ranks and not any(one.is_python for one in found):
            self.has_ended = True  # its launcher goes on alone: what was seen stays
            return
        self._processes = found
        found_processes.refuse_foreign(self._root, self._processes)
        self._starters = ranks_of(self._processes)
        spawned = [one for one in self._processes if one.pid in self._spawned]
        self._ranks = spawned or self._starters
        if any(one.has_gpu is not False and one.pid not in self._shares for one in self._ranks):
            self._gpus = list_gpus()
        for one in self._ranks:
            share = gpus_of(one.pid, one.has_gpu, self._gpus)
            if share.gpus:
                self._shares[one.pid] = share
                self._board.watch(share.gpus[0].uuid)

    def _watched(self, process: Process) -> _Watched:
        return self._seen.setdefault((process.pid, process.started), _Watched(process))

    def _helpers(self, rank: Process) -> list[Process]:
        return helpers_of(rank, self._processes, self._ranks)

    def _count(self) -> None:
        self._counts += 1
        states = [found_processes.state_of(one, self._proc) for one in self._ranks]
        self._stops += any(state in STOPPED for state in states)
        for rank in self._ranks:
            one = self._watched(rank)
            now = usage.totals(rank.pid, [helper.pid for helper in self._helpers(rank)], self._proc)
            use = usage.between(one.last, now) if one.last is not None else None
            if one.last is None or use is not None:
                one.last = now
            if use is not None:
                one.uses.append(use)

    def _look(self) -> None:
        self._turn += 1
        count = len(self._ranks)
        some = [self._ranks[(self._turn + at) % count] for at in range(min(count, MOST_RANKS_PER_LOOK))]
        for rank in some:
            if self._spy is None:
                return
            self._look_at(rank, is_rank=True)
            self._look_at_one(self._helpers(rank))
        if self._spawned:
            known = {one.pid for one in self._ranks}
            below = [one for starter in self._starters for one in helpers_of(starter, self._processes, [])]
            self._look_at_one([one for one in below if one.pid not in known and one.parent not in known])

    def _look_at_one(self, helpers: list[Process]) -> None:
        """Helpers take turns."""
        if helpers:
            self._look_at(helpers[self._turn % len(helpers)], is_rank=False)

    def _look_at(self, process: Process, is_rank: bool) -> None:
        if self._spy is None:
            return
        try:
            threads = spy.look(self._spy, process.pid)
        except spy.Refused as refusal:
            if self._looks == 0 and is_rank and found_processes.is_alive(process, self._proc):
                self.why_no_lines, self._spy = str(refusal), None
            return
        one = self._watched(process)
        if threads is not None:
            one.looks.append(threads)
            one.texts |= self._lines_of(process).texts([thread.stack for thread in threads])
        if not is_rank and one.is_in(_SPAWNED):
            self._spawned.add(process.pid)
        self._looks += is_rank and threads is not None
        self._missed += is_rank and threads is None

    def _lines_of(self, process: Process) -> Sources:
        if process.pid not in self._sources:
            self._sources[process.pid] = Sources(process.pid, process.started, self._proc)
        return self._sources[process.pid]

    # -- telling -------------------------------------------------------------------------------------

    def run(self) -> Run:
        """All that was seen in the last minutes."""
        ranks = [self._rank(number, one) for number, one in enumerate(self._ranks)]
        names = [Path(word).name for word in self.words if word.endswith(".py")]
        return Run(
            kind="watch",
            paths=(f"process {self._root.pid}" + (f" ({names[0]})" if names else ""),),
            ranks=tuple(ranks),
            notes=tuple(self._notes()),
            watched=WatchedJob(
                pid=self._root.pid,
                seconds=self.seconds,
                looks=self._looks,
                missed=self._missed,
                why_no_lines=self.why_no_lines,
                has_ended=self.has_ended,
                is_stopped=self._stops > SMALL_PART * max(self._counts, 1),
            ),
        )

    def _rank(self, number: int, process: Process) -> Rank:
        one = self._watched(process)
        share = self._shares.get(process.pid, Share())
        uuid = share.gpus[0].uuid if share.gpus else None
        use = usage.mean(list(one.uses))
        stacks, thread = training_stacks(process.pid, list(one.looks))
        workers = [self._watched(helper) for helper in self._helpers(process)]
        workers = [helper for helper in workers if helper.is_in(_WORKER_LOOP)]
        made = _counted(
            [
                stack
                for helper in workers
                for stack in training_stacks(helper.process.pid, list(helper.looks))[0]
            ]
        )
        on_gpu = bool(share.gpus) or bool(process.has_gpu)
        return Rank(
            number=process.rank if process.rank is not None else number,
            telemetry=self._telemetry(uuid, use),
            device_kind="gpu" if on_gpu else "cpu",
            device_name=share.gpus[0].name if share.gpus else None if on_gpu else core_name(),
            total_memory=share.gpus[0].memory if share.gpus else None,
            loader_workers=len(workers) if workers else None,
            watched=WatchedRank(
                pid=process.pid,
                known_rank=process.rank,
                gpu=uuid,
                gpus=len(share.gpus) if share.gpus or process.has_gpu is False else None,
                stacks=_counted(stacks),
                worker_stacks=made,
                workers=len(workers),
                texts={key: text for helper in [*workers, one] for key, text in helper.texts.items()},
                use=use,
                other_thread=thread,
            ),
        )

    def _telemetry(self, uuid: str | None, use: ProcessUse) -> Telemetry:
        told = self._board.summary(uuid) if uuid is not None else None
        cpu = CpuUse(own_busy=use.cores, in_line_share=use.in_line_share, seconds=use.seconds)
        return msgspec.structs.replace(told or NO_TELEMETRY, cpu=cpu)

    def _notes(self) -> list[str]:
        notes = [self.why_no_lines] if self.why_no_lines else []
        if self._ranks and not any(one.has_torch is not False for one in self._ranks):
            notes.append(
                "torch is not loaded in this process: it has not begun yet, or it is no PyTorch job."
            )
        on_gpu = [one for one in self._ranks if one.has_gpu]
        if on_gpu and not self._shares:
            why = self._gpus.why_not or "NVML does not say which GPU is whose, as in many containers"
            notes.append(f"The job uses a GPU, and its counters are unknown: {why}.")
        if any(not share.is_sure for share in self._shares.values()):
            notes.append("NVML does not name the job's process here: the only GPU is taken for the job's.")
        several = [share for share in self._shares.values() if len(share.gpus) > 1]
        if several:
            count = len(several[0].gpus)
            notes.append(f"A process uses {count} GPUs: the figures are of the one on which it holds most.")
        unnamed = [one for one in self._ranks if one.rank is None and one.pid not in self._spawned]
        if len(unnamed) > 1:
            notes.append(
                f"{len(unnamed)} processes with torch were started side by side, and none says its rank. If "
                "they are different jobs, watch one at a time."
            )
        return notes


def _spent_on_children() -> float:
    """CPU seconds that py-spy took so far."""
    times = os.times()
    return times.children_user + times.children_system


def _counted(stacks: list[SeenStack]) -> tuple[SeenStack, ...]:
    """The same stacks, each once with how often it was seen."""
    counts: Counter[SeenStack] = Counter()
    for stack in stacks:
        counts[msgspec.structs.replace(stack, count=1)] += stack.count
    return tuple(msgspec.structs.replace(stack, count=count) for stack, count in counts.most_common())


def training_stacks(pid: int, looks: list[list[spy.ThreadStack]]) -> tuple[list[SeenStack], str]:
    """The stacks of the thread that trains, and its name where that is not the main one.

    It is the main one, unless that only waits and another one works: some frameworks train in a thread.
    """
    main: list[SeenStack] = []
    others: dict[str, list[SeenStack]] = {}
    for threads in looks:
        for one in threads:
            if one.thread == pid or one.name == "MainThread":
                main.append(one.stack)
            else:
                others.setdefault(one.name, []).append(one.stack)
    asleep = [
        one
        for one in main
        if not one.is_running and not any(_IN_LOADER in frame.file for frame in one.frames)
    ]
    for name, stacks in others.items():
        works = sum(one.is_running for one in stacks)
        if len(asleep) >= NEARLY_ALL * len(looks) and works >= MAJORITY_SHARE * len(looks):
            return stacks, name
    return main, ""
