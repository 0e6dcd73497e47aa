"""How long Python's garbage collector holds the host up: that is in no trace.

Python throws away whatever a collector's callback raises. A signal that comes while the collector runs is
handled at the first line of Python after it, which is our callback: a Ctrl-C would be lost there. So it is
sent again.
"""

from __future__ import annotations

import _thread
import functools
import gc
import linecache
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from findwall.agent.timing.sampler import short
from findwall.apply.registry import REGISTRY, UNDONE, Call, Put
from findwall.model.catalogue import MAJORITY_SHARE

AGAIN_S = 0.001  # later, when the callback is over; chosen by hand
LONG_NS = 1_000_000  # a collection worth a line. Chosen by hand.
ASKED = "collect("
BY = "collector"

_watching: list[Put] = []
_long: deque[tuple[str, int, int]] = deque(maxlen=1000)  # the last of them: file, line and time


def asked_at() -> str:
    """The line that the long collections are asked for from, `train.py:41`; nothing where Python itself
    begins them: then it is whatever line came to make one object too many."""
    calls = [ASKED in linecache.getline(file, line) for file, line, _ in _long]
    first = calls.index(True) if any(calls) else len(calls)  # what came before was start-up
    spent: Counter[tuple[str, int]] = Counter()
    for file, line, ns in list(_long)[first:]:
        spent[file, line] += ns
    asked = {(file, line) for (file, line, _), call in zip(_long, calls, strict=True) if call}
    most = max(asked, key=spent.__getitem__, default=None)
    if most is None or spent[most] < MAJORITY_SHARE * spent.total():
        return ""
    return f"{short(most[0])}:{most[1]}"


def watch_collector(is_off: Callable[[], bool], tell: Callable[[int], None]) -> None:
    """Tell of every collection how many nanoseconds it took. Who asks again is told as before."""
    if any(put.state != UNDONE for put in _watching):
        return
    began = 0

    def note(phase: str, info: dict[str, Any]) -> None:
        nonlocal began
        if is_off():
            return
        if phase == "start":
            began = perf_counter_ns()
        elif began:
            spent, began = perf_counter_ns() - began, 0
            tell(spent)
            frame = sys._getframe().f_back  # none where Python itself ends
            if spent >= LONG_NS and frame is not None:
                _long.append((frame.f_code.co_filename, frame.f_lineno, spent))

    again = functools.partial(_sends_signals_again, note)
    _watching[:] = [
        REGISTRY.wrap(BY, sys, "unraisablehook", again),
        REGISTRY.add(BY, "gc.callbacks", gc.callbacks, note),
    ]


def _sends_signals_again(callback: Call, before: Call) -> Call:
    def hook(thrown: Any, /) -> None:
        number = _signal_behind(thrown.exc_value, thrown.exc_traceback) if thrown.object is callback else None
        if number is None:
            before(thrown)
        else:  # from another thread: here it would be raised at once, and thrown away again
            _thread.start_new_thread(_send, (number,))

    return hook


def _signal_behind(error: BaseException | None, trace: TracebackType | None) -> signal.Signals | None:
    """The signal whose handler has raised this; None if no handler did."""
    codes = []
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    for number in signal.Signals:
        handler = signal.getsignal(number)
        if handler is signal.default_int_handler and isinstance(error, KeyboardInterrupt):
            return number
        if getattr(handler, "__code__", None) in codes:
            return number
    return None


def _send(number: signal.Signals) -> None:
    """To the main thread itself, which may be in a call by now that only a real signal ends."""
    time.sleep(AGAIN_S)
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, number)
