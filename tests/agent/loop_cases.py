"""Jobs of plain loops, for a Python that tells of turns: `python loop_cases.py NAME...` says what was found.

Run on its own (no torch, nothing installed), for the finder needs neither. The line whose loop is the step
carries STEP in a comment.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ["FINDWALL_SOURCE"])

from findwall.agent.step_ends import loopfinder
from findwall.agent.step_ends.codeloops import loops_of

NS = 10**9
# A tenth of the times that a job would see.
loopfinder.QUIET_NS = NS // 20
loopfinder.SLOWEST_TURN_NS = NS
loopfinder.STEADY_NS = NS // 10
loopfinder.LOST_NS = 6 * NS
loopfinder.WAIT_PERIOD_S = 0.02
loopfinder.LOOK_PERIOD_S = 0.01

HERE = Path(__file__).name
DEADLINE_S = 15
WANTED = 8


class Watch:
    wants_loop = True

    def __init__(self) -> None:
        self.places: list[str] = []
        self.turns = self.strange = self.work = self.marks = 0
        self.device = False
        self.failures: list[str] = []
        self.end = time.monotonic() + DEADLINE_S
        self.finder = loopfinder.LoopFinder(threading.get_ident(), self, __file__, lambda: self.marks)
        self.finder.start()

    def at_work(self) -> bool:
        return True

    def device_work(self) -> int | None:
        return self.work if self.device else None

    def loop_chosen(self, key: int, place: str) -> None:
        self.places.append(place)
        self.turns = 0

    def loop_turned(self, key: int) -> None:
        self.turns += 1
        self.strange += threading.current_thread() is not threading.main_thread()

    def guard(self, action) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - told in the test
            self.failures.append(repr(error))

    def going(self) -> bool:
        return self.turns < WANTED and time.monotonic() < self.end

    def on(self, seconds: float) -> bool:
        return time.monotonic() < self.end - DEADLINE_S + seconds


def work() -> None:
    time.sleep(0.004)


def case_nested(watch):
    for _call in itertools.count():  # STEP
        for _layer in range(3):
            work()
        if not watch.going():
            break


def case_epochs(watch):
    for _epoch in range(3):
        for _batch in range(2000):  # STEP
            work()
            if not watch.going():
                return


def case_while(watch):
    count = 0
    while watch.going():  # STEP
        count += 1
        if count % 3 == 0:
            continue
        work()


def case_forever(watch):
    while True:  # STEP
        try:
            work()
            raise ValueError
        except ValueError:
            if watch.going():
                continue
        break


def batches():
    while True:
        work()
        yield 1


def case_generator(watch):
    for _batch in batches():  # STEP
        work()
        if not watch.going():
            break


class Index:
    def nearest(self):
        found = []
        for chunk in range(4):
            work()
            found.append(chunk)
        return found


def case_method(watch):
    index, found = Index(), set()
    while watch.going():  # STEP
        found.update(index.nearest())


def case_comprehension(watch):
    return [work() for _ in itertools.takewhile(lambda _: watch.going(), itertools.count())]  # STEP


def case_setup_first(watch):
    for _shard in range(3):
        time.sleep(0.03)
    while watch.going():  # STEP
        work()


def spin(turns):
    total = 0
    for number in range(turns):
        total += number
    return total


def case_hot(watch):
    """A tight loop in each turn: silenced after a few events. Those that are told are what it costs."""
    turns, calls, told, jumped = 100_000, 0, [], watch.finder._jumped

    def counted(code, offset, target):
        told.append(code is spin.__code__)
        return jumped(code, offset, target)

    watch.finder._jumped = counted  # the finder waits for a while before it hands it on
    while watch.going():  # STEP
        spin(turns)
        calls += 1
    return {"turns": turns * calls, "told": sum(told)}


def case_phases(watch):
    while watch.going():  # STEP
        work()
    watch.turns, watch.end = 0, time.monotonic() + DEADLINE_S
    while (len(watch.places) < 2 and time.monotonic() < watch.end) or watch.going():  # STEP
        work()


def case_raises(watch):
    while watch.going():
        try:
            for _number in range(1000):  # STEP
                work()
                if not watch.going():
                    return
            raise KeyError
        except KeyError:
            continue


class Closing:
    def __init__(self, told):
        self.told = told

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.told.append(kind.__name__ if kind else "")


def stop_at_fifth(watch):
    def turned(key):
        watch.turns += 1
        if watch.turns == 5:
            watch.finder.stop()
            raise SystemExit(0)

    watch.loop_turned = turned


def case_stopped_in_for(watch):
    """A job that is to be stopped is ended in a turn: what stands around the loop is left in good order."""
    told = []
    stop_at_fifth(watch)
    try:
        with Closing(told):
            try:
                for _call in range(2000):  # STEP
                    work()
            finally:
                told.append("finally")
    except SystemExit as leaving:
        told.append(leaving.code)
    return [told, tools()]


def case_stopped_in_while(watch):
    told = []
    stop_at_fifth(watch)
    try:
        while time.monotonic() < watch.end:  # STEP
            with Closing(told):
                work()
            del told[:]
    except SystemExit as leaving:
        told.append(leaving.code)
    return [told, tools()]


def case_own_tool(watch):
    """The job has a tool of its own, on the first id we would take, and its events are its own."""
    monitoring, seen = sys.monitoring, []
    monitoring.use_tool_id(loopfinder.TOOL_IDS[0], "job")
    monitoring.register_callback(
        loopfinder.TOOL_IDS[0], monitoring.events.PY_START, lambda code, offset: seen.append(code.co_name)
    )
    monitoring.set_local_events(loopfinder.TOOL_IDS[0], work.__code__, monitoring.events.PY_START)
    calls = 0
    while watch.going():  # STEP
        work()
        calls += 1
    monitoring.free_tool_id(loopfinder.TOOL_IDS[0])
    return calls == len(seen)


def case_no_tool_left(watch):
    for tool in loopfinder.TOOL_IDS:
        sys.monitoring.use_tool_id(tool, "job")
    while watch.on(1):
        work()
    named = [sys.monitoring.get_tool(tool) for tool in loopfinder.TOOL_IDS]
    for tool in loopfinder.TOOL_IDS:
        sys.monitoring.free_tool_id(tool)
    return named


def shared_loop(going):
    while going():  # STEP
        work()


def case_threads(watch):
    """Another thread runs the same loop: its turns are no steps of the main one."""
    other = threading.Thread(target=shared_loop, args=(watch.going,))
    other.start()
    shared_loop(watch.going)
    other.join()


def case_only_threads(watch):
    other = threading.Thread(target=shared_loop, args=(lambda: watch.on(1),))
    other.start()
    other.join()


def case_marked_otherwise(watch):
    while watch.on(1):
        watch.marks += 1
        work()


def case_better_later(watch):
    while watch.going():  # STEP
        work()
    watch.wants_loop = False
    time.sleep(0.3)
    turns = watch.turns
    for _ in range(20):
        work()
    return watch.turns - turns


def case_no_device_work(watch):
    watch.device = True
    while watch.on(1):
        work()
    for _ in itertools.count():  # STEP
        watch.work += 1
        work()
        if not watch.going():
            break


def case_library(watch):
    """A library calls the job's function in a loop: that loop is the step, none in the function."""
    folder = Path(os.environ["FINDWALL_CASES"]) / "site-packages"
    folder.mkdir(exist_ok=True)
    (folder / "runner_of_jobs.py").write_text(
        "def run(function, going):\n    while going():\n        function()\n"
    )
    sys.path.insert(0, str(folder))
    import runner_of_jobs

    runner_of_jobs.run(Index().nearest, watch.going)
    return "runner_of_jobs.py:2"


def case_module_level(watch):
    file = Path(os.environ["FINDWALL_CASES"]) / "script.py"
    file.write_text("while watch.going():\n    for _ in range(2):\n        work()\n")
    exec(compile(file.read_text(), str(file), "exec"), {"watch": watch, "work": work})
    return "script.py:1"


def case_long(watch):
    """A body so long that its jump needs a prefix."""
    file = Path(os.environ["FINDWALL_CASES"]) / "long.py"
    file.write_text("while watch.going():\n    work()\n" + "    x = [1, 2, 3].count(2) + 7\n" * 400)
    exec(compile(file.read_text(), str(file), "exec"), {"watch": watch, "work": work})
    return "long.py:1"


def case_forked(watch):
    """A forked child has no events left, and the tool is free."""
    while watch.going():  # STEP
        work()
    child = os.fork()
    if child == 0:
        watch.finder.forked()
        watch.turns = 0
        for _ in range(20):
            work()
        os._exit(0 if watch.turns == 0 and tools() == [None] * 6 else 1)
    return os.waitpid(child, 0)[1]


def structure(watch):
    """Loops as they are written, whatever order their parts have in the code."""

    def written(run, more, items):
        for _item in items:
            try:
                run()
            except ValueError:
                continue
        while run() or more():
            while more():
                run()
                if run():
                    continue
                run()
        while True:
            with run():
                if more():
                    continue
            run()

    first = written.__code__.co_firstlineno
    return [
        [loop.line - first, len(loop.jumps)]
        for loop in sorted(loops_of(written.__code__), key=lambda x: x.line)
    ]


def tools():
    return [sys.monitoring.get_tool(tool) for tool in range(6)]


def expected(case) -> list[str]:
    lines, first = inspect.getsourcelines(case)
    lines, first = (inspect.getsourcelines(shared_loop)) if case is case_threads else (lines, first)
    return [f"{HERE}:{first + row}" for row, line in enumerate(lines) if line.rstrip().endswith("# STEP")]


def run(names: list[str], found: dict) -> dict:
    """One after the other, but in no loop: it would be one around those of the cases."""
    if not names:
        return found
    case = globals()[names[0]]
    watch = Watch()
    out = case(watch)
    watch.finder.stop()
    watch.finder.join()
    found[names[0]] = {
        "places": watch.places,
        "expected": expected(case),
        "turns": watch.turns,
        "strange": watch.strange,
        "failures": watch.failures,
        "out": out,
        "tools": tools(),
    }
    return run(names[1:], found)


if __name__ == "__main__":
    every = [name for name in list(globals()) if name.startswith("case_")] + ["structure"]
    print(json.dumps(run(sys.argv[1:] or every, {})))
