"""The functions of a job in which all calls of single layers lie that one step makes.

A job need not have a model of its own class: many keep layers in a list and call them in a function. What the
compiler can fuse stands in that function then, not in the layers.
"""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from findwall.apply.job_lines import is_job

# A function that trains is no forward pass: the compiler would break it in two there.
TRAINS = {"backward", "zero_grad"}
NO_PLAIN_CALL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

MOST_REPEATS = 4  # of a first layer in which nothing ended: it began at the wrong one. Chosen by hand.
MOST_SCANS = 4  # for functions that are defined once more: each goes over all objects. Chosen by hand.


class _Mark:
    """Stands in a frame as long as the job has that, as a trace function that is never set to trace.

    A frame itself would hold all that the job had in it, and its address may be another's later.
    """

    def __call__(self, *_event: Any) -> None:
        """Where the job traces itself: nothing."""


class _Running(NamedTuple):
    code: CodeType
    mark: weakref.ref[_Mark]


class LayerCalls:
    """Looks at who calls the layers: from the first call of a first one until a step later, then on.

    Jobs call layers before their first step as well, to look at shapes, to warm up, to evaluate: one function
    that was found may not be the one that the steps call.
    """

    def __init__(self) -> None:
        self._first: weakref.ref[Any] | None = None
        self._around: list[_Running] = []  # all calls so far: the job's frames, outermost first
        self._repeats = 0
        self._at_taken: list[_Running] = []
        self._scans_left = MOST_SCANS
        self.instead: dict[CodeType, Instead] = {}  # by the code of the function that was found
        self.outside = 0  # calls since the last one was found that lie in none of them

    def saw(self, module: Any) -> CodeType | None:
        """The innermost function that holds them all, as soon as it is called once more."""
        now = _own_frames()
        if self._is_taken(now):
            return None
        self.outside += 1
        if self._first is None or self._first() is None:
            self._begin(module, now)
            return None
        both = _both(self._around, now)
        if module is self._first():  # what has ended since then is what a step calls
            ended = [one.code for one in self._around[len(both) :] if _is_forward(one.code)]
            if ended:
                return self._take(ended[-1], module, now)
            self._repeats += 1
            if self._repeats == MOST_REPEATS:
                self._first = None  # the next one to be called may be the first of a step
        self._around = both
        return None

    def _take(self, code: CodeType, module: Any, now: list[_Running]) -> CodeType:
        self.outside, self._at_taken, self._first = 0, now, None
        if all(one.code is not code for one in now):
            self.outside = 1
            self._begin(module, now)
        return code

    def _begin(self, module: Any, now: list[_Running]) -> None:
        self._first, self._around, self._repeats = weakref.ref(module), now, 0

    def _is_taken(self, now: list[_Running]) -> bool:
        """Whether the call lies in a function that was found already: then it is compiled, or was begun
        before it was."""
        if any(one.code in instead.codes for one in now for instead in self.instead.values()):
            return True
        for one in now:
            if one.code in self.instead:
                if one not in self._at_taken and self._scans_left:
                    self._scans_left -= 1
                    self.instead[one.code].look()
                return True
        return False

    def stop(self) -> None:
        self._first, self._around, self._at_taken = None, [], []


def _own_frames() -> list[_Running]:
    found = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if is_job(frame.f_code.co_filename):
            if frame.f_trace is None:
                frame.f_trace = _Mark()
            if isinstance(frame.f_trace, _Mark):  # else somebody debugs it
                found.append(_Running(frame.f_code, weakref.ref(frame.f_trace)))
        frame = frame.f_back
    return found[::-1]


def _both(some: Sequence[_Running], others: Sequence[_Running]) -> list[_Running]:
    """The frames that two stacks have in common. One that ended is in none: its mark went with it."""
    same = 0
    while same < min(len(some), len(others)) and some[same] == others[same]:
        same += 1
    return list(some[:same])


def _is_forward(code: CodeType) -> bool:
    return (
        not code.co_name.startswith("<")  # a comprehension, a lambda
        and not code.co_flags & NO_PLAIN_CALL
        and not _trains(code)
    )


def _trains(code: CodeType) -> bool:
    """Also in a function that is defined in it, as what LBFGS is given."""
    return not TRAINS.isdisjoint(code.co_names) or any(
        _trains(one) for one in code.co_consts if isinstance(one, CodeType)
    )


_numbers = count()


class Instead:
    """From its next call on, a function with this code is what `make` makes of one that is the same.

    Whoever holds the function holds it still: names, cells, bound methods; its parameters stay as they are.
    """

    def __init__(self, code: CodeType, make: Callable[[FunctionType], Callable[..., Any]]) -> None:
        self._code = code
        self._same: list[FunctionType] = []
        self.codes: set[CodeType] = set()  # of those that call what was made
        self.anew = False  # the job has defined it once more since then: that one is as it was
        for function in _functions_of(code):
            same = FunctionType(
                code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
            )
            same.__kwdefaults__, same.__qualname__ = function.__kwdefaults__, function.__qualname__
            same.__annotations__, same.__module__ = function.__annotations__, function.__module__
            # A global: the compiler can follow it where it comes by, in a function that calls itself.
            name = f"_findwall_made_{next(_numbers)}"
            function.__globals__[name] = make(same)
            function.__code__ = _calling(name, code)
            self._same.append(same)
            self.codes.add(function.__code__)

    def look(self) -> None:
        """Whether there are functions by now that have the code as it was."""
        self.anew = self.anew or any(one not in self._same for one in _functions_of(self._code))


def _functions_of(code: CodeType) -> list[FunctionType]:
    return [one for one in gc.get_referrers(code) if isinstance(one, FunctionType) and one.__code__ is code]


def _calling(name: str, code: CodeType) -> CodeType:
    """Code with the same parameters, which passes them all on to what has this name."""
    names, positional, plain = code.co_varnames, code.co_posonlyargcount, code.co_argcount
    rest = plain + code.co_kwonlyargcount
    takes = [*names[:plain]]
    passes = [*takes]
    if positional:
        takes.insert(positional, "/")
    if code.co_flags & inspect.CO_VARARGS:
        takes.append(f"*{names[rest]}")
        passes.append(f"*{names[rest]}")
        rest += 1
    elif code.co_kwonlyargcount:
        takes.append("*")
    only = names[plain : plain + code.co_kwonlyargcount]
    takes += only
    passes += [f"{one}={one}" for one in only]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        takes.append(f"**{names[rest]}")
        passes.append(f"**{names[rest]}")
    made: dict[str, Any] = {}
    exec(f"def made({', '.join(takes)}): return {name}({', '.join(passes)})", made)
    new: CodeType = made["made"].__code__.replace(
        co_freevars=code.co_freevars,
        co_name=code.co_name,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )
    return new
