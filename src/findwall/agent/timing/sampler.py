"""Which line of Python the job's thread stands on: a thread that looks often, for a short while."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType

from findwall.agent.timing.line_source import Stand, comes_once, forget, is_looped, routine_at
from findwall.agent.timing.thread_stacks import look
from findwall.model.measurement import Line

SAMPLE_PERIOD_S = 0.007  # no divisor of common step times
SAMPLES = 150  # about a second of them: a line with a tenth of the time is then seen some 15 times
MOST_SAMPLES = 400  # over a longer time: then they come less often
LINES_KEPT = 12
# Python lets a thread wait 5 ms for another's interpreter lock. Within that the job comes to its next op,
# which gives the lock away: the sampler would see the line of that op, whatever the job did before it.
SWITCH_S = 0.0002

_OWN = str(Path(__file__).resolve().parents[2]) + os.sep


@cache
def _library_folders() -> tuple[str, ...]:
    paths = {sysconfig.get_paths().get(key, "") for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*(path + os.sep for path in paths if path), "<frozen", _OWN)


def is_library(file: str) -> bool:
    """Whether this is none of the person's own code."""
    if file.startswith(_library_folders()) or "site-packages" in file or "dist-packages" in file:
        return True
    return "torchinductor" in file or file.startswith("<")  # code that the compiler wrote


class LineSampler:
    """Samples one thread until it has enough, or is stopped."""

    def __init__(
        self,
        thread_id: int,
        seconds: float = SAMPLES * SAMPLE_PERIOD_S,
        also: Callable[[FrameType], None] | None = None,
    ) -> None:
        """`also`: who is shown each frame too."""
        self._thread_id = thread_id
        self._also = also
        self._wanted = min(max(SAMPLES, round(seconds / SAMPLE_PERIOD_S)), MOST_SAMPLES)
        self._period = max(SAMPLE_PERIOD_S, seconds / self._wanted)
        self._stop = threading.Event()
        self._seen: Counter[tuple[str, int, str, str]] = Counter()
        self._ways: dict[tuple[str, int, str, str], tuple[Stand, ...]] = {}  # lines that led there
        self._ends: tuple[Stand, ...] = ()
        self.samples = 0
        self._thread = threading.Thread(target=self._sample, name="findwall-lines", daemon=True)

    def start(self) -> None:
        """Called where a step ends, on the job's own thread, it learns which lines those are."""
        if threading.get_ident() == self._thread_id:
            self._ends = _way(sys._getframe())
        self._thread.start()

    @property
    def finished(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(0.5)

    def _sample(self) -> None:
        patience = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_S, patience))
        try:
            self._look()
        finally:
            sys.setswitchinterval(patience)

    def _look(self) -> None:
        while self.samples < self._wanted and not self._stop.wait(self._period):
            look(self._thread_id, self._see)

    def _see(self, frame: FrameType) -> None:
        self.samples += 1
        place = self._place(frame)
        self._seen[place] += 1
        if place not in self._ways:
            way = _way(frame)
            if way and (way[0].file, way[0].line) == place[:2]:  # the job may have run on meanwhile
                self._ways[place] = way
        self._show(frame)

    def _show(self, frame: FrameType) -> None:
        if self._also is None:
            return
        try:
            self._also(frame)
        except Exception:  # noqa: BLE001 - fail open: the frame runs on meanwhile, and what it holds changes
            return

    def _place(self, frame: FrameType) -> tuple[str, int, str, str]:
        """The innermost line of the person's own code, and the function it is in the end inside of."""
        innermost = own = frame
        walk: FrameType | None = frame
        while walk is not None:
            if not is_library(walk.f_code.co_filename):
                own = walk
                break
            walk = walk.f_back
        while innermost.f_code.co_filename.startswith(_OWN) and innermost.f_back is not None:
            innermost = innermost.f_back  # a hook of ours is not what the job does there
        inside = "" if innermost is own else _function(innermost)
        return own.f_code.co_filename, own.f_lineno or 0, own.f_code.co_name, inside

    def lines(self) -> list[Line]:
        top = self._seen.most_common(LINES_KEPT)
        found = [
            Line(
                f"{short(place[0])}:{place[1]}",
                place[2],
                count / self.samples,
                place[3],
                *self._source(place),
            )
            for place, count in top
        ]
        forget()
        return found

    def _source(self, place: tuple[str, int, str, str]) -> tuple[str, bool | None, bool | None]:
        """What the source tells of a line, where anybody can read it."""
        way = self._ways.get(place, ())
        try:
            return routine_at(*place[:2]), is_looped(way, self._ends), comes_once(way, self._ends)
        except Exception:  # noqa: BLE001 - fail open: a job's file may be anything
            return "", None, None


def _way(frame: FrameType) -> tuple[Stand, ...]:
    """The lines of the person's own code that are running, the innermost first."""
    found: list[Stand] = []
    walk: FrameType | None = frame
    while walk is not None:
        code, before = walk.f_code, walk.f_back
        if not is_library(code.co_filename):
            direct = before is not None and not is_library(before.f_code.co_filename)
            found.append(Stand(code.co_filename, walk.f_lineno or 0, code.co_name, direct))
        walk = before
    return tuple(found)


def _function(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"


def short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return Path(file).name
