"""The last resort for where a step ends: a turn of the job's own loop.

A job of plain functions may call no optimizer, no module and no loader, but it loops. Python tells of the
turns since 3.12 (`sys.monitoring`): events of chosen code objects, at no cost to any other code. A thread
looks at which loops of the job's own code its main thread stands in, and has their backward jumps told. The
step is a turn of the outermost loop that turns steadily, every few seconds or sooner: an epoch is no step,
and a loop over layers is part of one. All other jumps are silenced at their first event.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, Protocol

from findwall.agent.membership import Membership
from findwall.agent.options import COMMAND, Options
from findwall.agent.step_ends.codeloops import Loop, around, loops_of
from findwall.agent.timing.thread_stacks import look, threads_take_turns
from findwall.apply.job_files import JobFiles
from findwall.apply.registry import COUNTS, REGISTRY, Put
from findwall.units import NS_PER_S

# All chosen by hand, not calibrated.
QUIET_NS = 5 * NS_PER_S  # without any other mark, torch at work, before loops are looked at
WAIT_PERIOD_S = 0.5
LOOK_PERIOD_S = 0.05
OFTEN_NS = 60 * NS_PER_S  # from then on looks are rarer: what does not turn by now may never
SLOWEST_TURN_NS = 8 * NS_PER_S  # a loop that turns more seldom is one over epochs
ENOUGH_TURNS = 4
STEADY_NS = NS_PER_S  # of turns: what is set up in a loop is over sooner
LOST_NS = 60 * NS_PER_S  # without a turn: another loop may be the one by now
# An event took 1 us while loops are watched, 0.4 us once one is chosen (CPython 3.12, 3.13 on a slow core). A
# loop that turns more often than this is silenced after a few.
FASTEST_TURN_NS = 100_000
TRIED_TURNS = 32
MOST_CODES = 32  # code objects that are watched at the same time
TOOL_IDS = (4, 3)  # those that Python keeps for nobody
TOOL_NAME = "findwall"


class LoopWatcher(Protocol):
    """Who is told, and asked. All but `loop_turned` on a thread of ours."""

    @property
    def wants_loop(self) -> bool:
        """Nothing better ends steps."""

    def at_work(self) -> bool:
        """torch computes by now, as far as that can be seen."""

    def device_work(self) -> int | None:
        """A number that grows as the device is given work; None where there is none."""

    def loop_chosen(self, key: int, place: str) -> None: ...
    def loop_turned(self, key: int) -> None: ...
    def guard(self, action: Callable[[], None]) -> None:
        """Do this, and be gone if it fails."""


def is_wanted(options: Options, rank: Membership) -> bool:
    """Whoever else measures a job marks its steps; and several ranks would have to agree on the first."""
    return options.caller == COMMAND and rank.world_size == 1


def monitoring() -> Any | None:
    """Python's own, where it has one and threads take turns; the code of others is then changed safely."""
    return getattr(sys, "monitoring", None) if threads_take_turns() else None


class Turns:
    """Of one loop, while it is watched."""

    __slots__ = ("count", "events", "first", "last", "loop", "since", "too_fast", "work")

    def __init__(self, loop: Loop, since: int, work: int = 0) -> None:
        self.loop, self.since = loop, since
        self.work = work  # that the device had been given by then
        self.events = self.count = self.first = self.last = 0
        self.too_fast = False

    def add(self, now: int) -> None:
        if self.count and now - self.last > SLOWEST_TURN_NS:
            self.count = 0
        self.count += 1
        if self.count == 1:
            self.first = now
        self.last = now

    def costs_too_much(self, now: int) -> bool:
        """Whoever turned it: events are told of every thread that runs this code."""
        self.events += 1
        if self.events % TRIED_TURNS == 0:
            self.too_fast = now - self.since < self.events * FASTEST_TURN_NS
        return self.too_fast

    @property
    def is_steady(self) -> bool:
        return self.count >= ENOUGH_TURNS and self.last - self.first >= STEADY_NS


def choose(standing: Sequence[Turns], now: int) -> Turns | None:
    """Of the loops the job stands in, outermost first, the one whose turn is a step; None: not known yet."""
    for turns in standing:
        if turns.too_fast:
            continue
        if turns.is_steady and now - turns.last <= SLOWEST_TURN_NS:
            return turns
        if now - max(turns.last, turns.since) <= SLOWEST_TURN_NS:
            return None  # it may turn yet, and those inside it are part of its turn
    return None


class LoopFinder:
    """Waits, watches the loops of one thread, and then follows the one that was chosen."""

    def __init__(
        self, thread_id: int, watcher: LoopWatcher, main_file: str, marks: Callable[[], int]
    ) -> None:
        self._monitoring = monitoring()
        self._thread_id, self._watcher = thread_id, watcher
        self._count_marks = marks  # of other kinds
        self._files = JobFiles(main_file)
        self._tool: int | None = None
        self._put: Put | None = None
        self._loops: dict[int, tuple[CodeType, list[Loop]]] = {}  # by the id of the code, kept alive for it
        self._watched: dict[int, CodeType] = {}  # with events on
        self._turns: dict[tuple[int, int], Turns] = {}  # by the id of the code, and the jump
        self._standing: list[Turns] = []
        self._chosen: Chosen | None = None
        self._is_leaving = False
        self._marks = 0
        self._quiet_since = self._began = perf_counter_ns()
        self._lock = threading.RLock()  # the thread that is watched may end it all, from inside an event
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="findwall-loops", daemon=True)

    def start(self) -> None:
        if self._monitoring is not None:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._switch_off()

    def forked(self) -> None:
        """In a child, which has this thread only: who held a lock is not there."""
        self._lock = threading.RLock()
        self._switch_off()

    def join(self) -> None:
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(0.5)

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            if not self._watcher.wants_loop:
                break
            with self._lock:
                self._watcher.guard(self._go_on)
        with self._lock:
            if not self._is_leaving:
                self._switch_off()

    @property
    def _period(self) -> float:
        is_watching = self._tool is not None and self._chosen is None
        return LOOK_PERIOD_S if is_watching and perf_counter_ns() - self._began < OFTEN_NS else WAIT_PERIOD_S

    def _go_on(self) -> None:
        now = perf_counter_ns()
        if self._stop.is_set():
            return
        if self._chosen is not None:
            self._follow(self._chosen, now)
        elif not self._is_quiet(now):
            self._switch_off()
        elif self._tool is not None or self._take_tool():
            self._began = self._began if self._watched else now
            self._watch(now)

    def _is_quiet(self, now: int) -> bool:
        marks = self._count_marks()
        if marks != self._marks or (self._tool is None and not self._watcher.at_work()):
            self._marks, self._quiet_since = marks, now
        return now - self._quiet_since >= QUIET_NS

    def _take_tool(self) -> bool:
        assert self._monitoring is not None
        for tool in TOOL_IDS:
            with contextlib.suppress(ValueError):  # the job, a debugger or a coverage tool has it
                self._monitoring.use_tool_id(tool, TOOL_NAME)
                self._monitoring.register_callback(tool, self._monitoring.events.JUMP, self._jumped)
                self._tool = tool
                self._put = REGISTRY.hold("loops", "sys.monitoring", self._switch_off, past_trace=COUNTS)
                return True
        return False

    # Watching

    def _watch(self, now: int) -> None:
        standing = self._loops_now()
        for loop in standing:
            self._tell_of(loop, now)
        if standing:
            known = [loop for loop in standing if self._knows(loop)]
            self._standing = [self._turns[id(loop.code), min(loop.jumps)] for loop in known]
        chosen = choose(self._standing, now)
        if chosen is not None and self._is_working(chosen):
            outer = self._standing[: self._standing.index(chosen)]
            self._choose(chosen.loop, [turns.loop for turns in outer], now)

    def _is_working(self, turns: Turns) -> bool:
        """What only prepares data gives the device nothing."""
        work = self._watcher.device_work()
        return work is None or work - turns.work >= turns.count

    def _knows(self, loop: Loop) -> bool:
        return (id(loop.code), min(loop.jumps)) in self._turns

    def _tell_of(self, loop: Loop, now: int) -> None:
        """Have this loop's turns told from now on."""
        if self._knows(loop) or (id(loop.code) not in self._watched and len(self._watched) >= MOST_CODES):
            return
        turns = Turns(loop, now, self._watcher.device_work() or 0)
        for jump in loop.jumps:
            self._turns[id(loop.code), jump] = turns
        self._set_events(loop.code, on=False)  # off and on again: jumps that were silenced are told again
        self._set_events(loop.code, on=True)

    def _jumped(self, code: CodeType, offset: int, target: int) -> object:
        """On whichever thread has jumped in a code that is watched."""
        turns = self._turns.get((id(code), offset))
        now = perf_counter_ns()
        if turns is None or turns.costs_too_much(now):
            return self._silence
        if threading.get_ident() == self._thread_id:
            turns.add(now)
        return None

    @property
    def _silence(self) -> object:
        return None if self._monitoring is None else self._monitoring.DISABLE

    # Following

    def _choose(self, loop: Loop, outer: list[Loop], now: int) -> None:
        self._chosen = chosen = Chosen(loop, outer, now)
        silence, thread_id, jumps, code = self._silence, self._thread_id, loop.jumps, loop.code
        turned, key, ident = self._watcher.loop_turned, loop.key, threading.get_ident

        def jumped(where: CodeType, offset: int, target: int) -> object:
            if where is not code or offset not in jumps:
                return silence
            if ident() == thread_id:
                chosen.count += 1
                try:
                    turned(key)
                except SystemExit as leaving:
                    self._leave(loop, leaving)
            return None

        self._watcher.loop_chosen(key, loop.place)
        for watched in list(self._watched.values()):
            if watched is not code:
                self._set_events(watched, on=False)
        if self._tool is not None and self._monitoring is not None:
            self._monitoring.register_callback(self._tool, self._monitoring.events.JUMP, jumped)

    def _leave(self, loop: Loop, leaving: SystemExit) -> None:
        """End the job, from inside its loop.

        Python believes that no jump raises: what is raised at one passes by the `finally` and `with` around
        the loop. So it is raised at the next instruction that may."""
        with self._lock:
            self._is_leaving = True
            self._switch_off()
            if self._monitoring is None or not self._take_tool():
                raise leaving
        monitoring, tool = self._monitoring, self._tool

        def reached(where: CodeType, offset: int) -> None:
            if where is loop.code and offset in loop.may_raise and threading.get_ident() == self._thread_id:
                self._switch_off()
                raise leaving

        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, reached)
        monitoring.set_local_events(tool, loop.code, monitoring.events.INSTRUCTION)
        self._watched[id(loop.code)] = loop.code

    def _follow(self, chosen: Chosen, now: int) -> None:
        """A loop may end, and the job go on in another."""
        if chosen.count != chosen.seen:
            chosen.seen, chosen.last = chosen.count, now
            return
        paused = now - chosen.last
        if paused < SLOWEST_TURN_NS:
            return
        begins = {loop.key for loop in self._loops_now()}
        if chosen.loop.key in begins or (paused < LOST_NS and begins & chosen.outer):
            return
        self._switch_off()

    # Events

    def _set_events(self, code: CodeType, on: bool) -> None:
        if self._tool is None or self._monitoring is None:
            return
        self._monitoring.set_local_events(self._tool, code, self._monitoring.events.JUMP if on else 0)
        if on:
            self._watched[id(code)] = code
        else:
            self._watched.pop(id(code), None)

    def _switch_off(self) -> None:
        """No event is left, and the tool is free for others."""
        with self._lock:
            self._free_tool()

    def _free_tool(self) -> None:
        put, self._put = self._put, None
        if put is not None:
            put.undo()  # which comes by here
            return
        tool, self._tool = self._tool, None
        watched, self._watched = list(self._watched.values()), {}
        self._turns, self._loops, self._standing, self._chosen = {}, {}, [], None
        if tool is None or self._monitoring is None or self._monitoring.get_tool(tool) != TOOL_NAME:
            return
        for code in watched:
            self._monitoring.set_local_events(tool, code, 0)
        for event in (self._monitoring.events.JUMP, self._monitoring.events.INSTRUCTION):
            self._monitoring.register_callback(tool, event, None)
        self._monitoring.free_tool_id(tool)

    # The stack

    def _loops_now(self) -> list[Loop]:
        """The loops that the thread stands in, outermost first."""
        found = []
        for code, offset in self._files.of_the_job(look(self._thread_id, _where) or []):
            if id(code) not in self._loops:
                self._loops[id(code)] = code, loops_of(code)
            found += around(self._loops[id(code)][1], offset)
        return found


class Chosen:
    """The loop whose turn is a step."""

    __slots__ = ("count", "last", "loop", "outer", "seen")

    def __init__(self, loop: Loop, outer: list[Loop], now: int) -> None:
        self.loop = loop
        self.outer = {one.key for one in outer}
        self.count = self.seen = 0
        self.last = now


def _where(frame: FrameType) -> list[tuple[CodeType, int]]:
    """Code and offset of each frame, innermost first. No frame is kept: it would keep what the job drops."""
    stands = []
    walk: FrameType | None = frame
    while walk is not None:
        stands.append((walk.f_code, walk.f_lasti))
        walk = walk.f_back
    return stands
