"""All that findwall replaces in a job's process: by whom, what, in which order, and how it is undone.

Everything goes through `REGISTRY`: functions of torch and Python that are wrapped, values that are set, what
is added to a list of Python's (`gc.callbacks`, `sys.meta_path`), and hooks that torch or Python keep. What a
fix sets on the job's own objects, its loaders and models, is not here: that is the fix.

Several may wrap the same function. The attribute then holds one function of ours that passes calls on, and
who stands around whom is declared in `ORDER`, so that it does not matter who came first. Whoever goes is
taken out of the middle. When the last one goes, the attribute gets the object that it had, unless something
else lies there by now: then the job, or a library, has wrapped ours and may still call it, and ours passes
calls on to the original and does nothing else (`COVERED`).

What is put goes when the trace is over. What is needed longer says why: `past_trace` for what goes when the
job ends, `past_end` for what stays until the process does.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import Any

Call = Callable[..., Any]
Make = Callable[[Call], Call]  # a call as it was; as it is with this replacement
Passing = Callable[["Spot"], Call]  # makes what lies in the attribute

IN_PLACE, UNDONE, COVERED = "in place", "undone", "covered"  # states
# Reasons that several share.
COUNTS = "steps are counted until the job ends"
EXPLAINS = "it tells what slow steps after the trace were"
COMPARES = "a trial compares what the whole process does"
APPLIED = "a fix that is applied holds until the process ends"
CANNOT = "Python has no way to take it back, and it does nothing once the session is over"
# What torch keeps in a list of its own.
STEP_PRE_HOOK = "torch.optim.optimizer.register_optimizer_step_pre_hook"
STEP_POST_HOOK = "torch.optim.optimizer.register_optimizer_step_post_hook"

# Who stands around whom, innermost first: a trial sees what torch is given in the end, fixes change that, and
# the measurement times all of it.
ORDER = (
    "trial seed",
    "trial losses",
    "trial samples",
    "trial files",
    "screened losses",
    "job's state",
    "loaders swept",
    "peaks by phase",
    "models called",
    "optimizers and modes",
    "loaders that feed",
    "loaders beside: loader-workers",
    "loaders beside: persistent-workers",
    "loaders beside: pin-memory",
    "threads: more-threads",  # the innermost number is the one that is set
    "threads: omp-threads",
    "pinned copies",
    "late reads",
    "skipped waits",
    "autocast",
    "autocast seen",
    "padding",
    "laid states",
    "broadcast-buffers",
    "bucket-collectives",
    "channels-last",
    "cudnn-benchmark",
    "expandable-segments",
    "foreach-optimizer",
    "freeze-gc",
    "fused-optimizer",
    "keep-cache",
    "keep-freed-memory",
    "less-recompute",
    "sdpa",
    "tf32",
    "job's writes",
    "parsers",
    "steps",
    "captures",
    "observer",
    "allocator",
    "allocator failures",
    "collector",
    "regions",
    "loops",
    "session",
)
_PLACE = {by: place for place, by in enumerate(ORDER)}
_ABSENT = object()


class Put:
    """One replacement."""

    def __init__(self, by: str, what: str, past_trace: str, past_end: str) -> None:
        self.by, self.what = by, what
        self.past_trace, self.past_end = past_trace, past_end
        self.state = IN_PLACE
        self._take_back: Callable[[], bool] = lambda: False  # whether all is as it was

    def __repr__(self) -> str:
        return f"{self.what} by {self.by}: {self.state}"

    @property
    def stays(self) -> str:
        """Why it is there after the trace; nothing where it is not."""
        return self.past_end or self.past_trace

    def undo(self) -> None:
        """As often as one likes. It raises nothing: whatever cannot be put back stays, and does nothing."""
        if self.state != UNDONE:
            self.state = COVERED
            with suppress(Exception):  # fail open: attributes of the job's own classes may refuse
                if self._take_back():
                    self.state = UNDONE


class Layer(Put):
    """One of those that wrap the same function."""

    def __init__(self, by: str, what: str, past_trace: str, past_end: str, make: Make) -> None:
        super().__init__(by, what, past_trace, past_end)
        self.make = make


class Spot:
    """One attribute with a function in it, and who wraps that."""

    def __init__(self, home: Any, name: str, passing: Passing) -> None:
        self.home, self.name = _reference(home), name
        # What a class only inherits is not its own afterwards either.
        self.own = vars(home).get(name, _ABSENT)
        self.original: Call = getattr(home, name)
        self.layers: list[Layer] = []
        self.call = self.original  # with all that stands around it
        self.passing = passing(self)
        plain = not isinstance(self.own, staticmethod)
        setattr(home, name, self.passing if plain else staticmethod(self.passing))

    @property
    def is_on_top(self) -> bool:
        """Whether the attribute still holds what we put there."""
        home = self.home()
        now = _ABSENT if home is None else vars(home).get(self.name, _ABSENT)
        return (now.__func__ if isinstance(now, staticmethod) else now) is self.passing

    def wrap(self, layer: Layer) -> None:
        layer.make(self.original)  # one that cannot be made says so here, and is not put
        self.layers.append(layer)
        self.layers.sort(key=lambda one: (_PLACE.get(one.by, len(_PLACE)), one.by))
        self.refold()

    def refold(self) -> None:
        call = self.original
        for layer in self.layers:
            with suppress(Exception):  # fail open: one that cannot be made again is left out
                call = layer.make(call)
        self.call = call

    def leave(self, layer: Layer) -> bool:
        if layer in self.layers:
            self.layers.remove(layer)
            self.refold()
        home = self.home()
        if self.layers or home is None:
            return True
        if not self.is_on_top:
            return vars(home).get(self.name, _ABSENT) is self.own
        _put_back(home, self.name, self.own)
        return True


def _reference(home: Any) -> Callable[[], Any]:
    """Nothing of the job's is kept alive for us, where that can be helped."""
    try:
        return weakref.ref(home)
    except TypeError:
        return lambda: home


def _put_back(home: Any, name: str, own: Any) -> None:
    if own is _ABSENT:
        delattr(home, name)
    else:
        setattr(home, name, own)


def pass_on(spot: Spot) -> Call:
    """What lies in the attribute: it calls what is to be called now."""

    @functools.wraps(spot.original)
    def passing(*args: Any, **kwargs: Any) -> Any:
        return spot.call(*args, **kwargs)

    return passing


class Registry:
    """The one list of a process. Calls of it come from the job's threads; none of them waits for another."""

    def __init__(self) -> None:
        self._puts: list[Put] = []
        self._spots: dict[tuple[int, str], Spot] = {}

    def wrap(
        self,
        by: str,
        home: Any,
        name: str,
        make: Make,
        *,
        past_trace: str = "",
        past_end: str = "",
        passing: Passing = pass_on,
    ) -> Put:
        """Stand around a function of a module, a class or an object. `make` may be called several times; the
        same who wraps the same once more replaces what it made before."""
        spot = self._spots.get((id(home), name))
        if spot is None or spot.home() is not home or not spot.is_on_top:
            spot = self._spots[id(home), name] = Spot(home, name, passing)
        for layer in spot.layers:
            if layer.by == by:
                layer.make, layer.past_trace, layer.past_end = make, past_trace, past_end
                spot.refold()
                return layer
        layer = Layer(by, _spelled(home, name), past_trace, past_end, make)
        layer._take_back = functools.partial(self._leave, spot, layer)
        try:
            spot.wrap(layer)
        except BaseException:  # also Ctrl-C: what is put by half is taken back, and it goes on
            self._leave(spot, layer)
            raise
        return self._keep(layer)

    def holds(self, by: str, home: Any, name: str) -> bool:
        """Whether this function is wrapped by them, and nothing else lies on top."""
        spot = self._spots.get((id(home), name))
        found = spot is not None and spot.home() is home and spot.is_on_top
        return found and spot is not None and any(layer.by == by for layer in spot.layers)

    def _leave(self, spot: Spot, layer: Layer) -> bool:
        as_it_was = spot.leave(layer)
        if not spot.layers:
            for key in [key for key, one in self._spots.items() if one is spot]:
                del self._spots[key]
        return as_it_was

    def set(self, by: str, home: Any, name: str, value: Any) -> Put:
        """Set an attribute to a plain value."""
        own = vars(home).get(name, _ABSENT)
        setattr(home, name, value)

        def take_back() -> bool:
            if vars(home).get(name, _ABSENT) is value:
                _put_back(home, name, own)
            return vars(home).get(name, _ABSENT) is own

        return self.hold(by, _spelled(home, name), take_back)

    def add(
        self,
        by: str,
        what: str,
        items: list[Any],
        item: Any,
        *,
        first: bool = False,
        past_trace: str = "",
        past_end: str = "",
    ) -> Put:
        """Add something to a list of Python's, as `gc.callbacks`."""
        items.insert(0 if first else len(items), item)

        def take_back() -> bool:
            items[:] = [one for one in items if one is not item]
            return True

        return self.hold(by, what, take_back, past_trace=past_trace, past_end=past_end)

    def hold(
        self,
        by: str,
        what: str,
        take_back: Callable[[], Any] | None,
        *,
        past_trace: str = "",
        past_end: str = "",
    ) -> Put:
        """What torch or Python keep themselves, and how they give it back: that counts as done unless it says
        False. None: there is no way."""
        put = Put(by, what, past_trace, past_end)
        if take_back is not None:
            put._take_back = lambda: take_back() is not False
        return self._keep(put)

    def _keep(self, put: Put) -> Put:
        self._puts = [one for one in self._puts if one.state != UNDONE]
        self._puts.append(put)
        return put

    @contextmanager
    def wrapped(self, by: str, home: Any, name: str, make: Make) -> Iterator[None]:
        """The same for a while."""
        put = self.wrap(by, home, name, make)
        try:
            yield
        finally:
            put.undo()

    def trace_ended(self) -> None:
        """All is measured: undo what need not stay."""
        self._undo([put for put in self._puts if not put.stays])

    def job_ended(self) -> None:
        """Or findwall is out for another reason: undo all but what stays until the process ends."""
        self._undo([put for put in self._puts if not put.past_end])

    def _undo(self, puts: list[Put]) -> None:
        for put in reversed(puts):  # also what was covered: it may lie on top again by now
            put.undo()
        self._puts = [put for put in self._puts if put.state != UNDONE]

    @property
    def puts(self) -> list[Put]:
        """What is in place or covered, in the order in which it was put."""
        return [put for put in self._puts if put.state != UNDONE]


REGISTRY = Registry()


def undo_all(puts: list[Put]) -> None:
    """Also from the middle of what others have put."""
    while puts:
        puts.pop().undo()


def called_from(frame: FrameType | None) -> FrameType | None:
    """This frame of a caller, or where it only passes a call on, the one that called it."""
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _spelled(home: Any, name: str) -> str:
    if isinstance(home, ModuleType):
        return f"{home.__name__}.{name}"
    if isinstance(home, type):
        return f"{home.__module__}.{home.__qualname__}.{name}"
    return f"{type(home).__qualname__}().{name}"
