"""Where in the job's own code something happens, for the patch that makes a fix permanent."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from types import FrameType
from typing import Any

from findwall.apply.job_files import JobFiles
from findwall.model.applied import Place, Spot

MOST_SPOTS = 24  # of a stack: the job's own frames are few. Chosen by hand.


def place_now(
    kind: str, of: Any = None, takes: Iterable[str] = (), given: Iterable[str] = (), value: str = ""
) -> Place | None:
    """The lines of the job that led to this call; None if none did. `of`: what is being made; a library's
    class that is made is what the job called."""
    frame: FrameType | None = sys._getframe(1)
    library = ""
    spots: list[Spot] = []
    while frame is not None and len(spots) < MOST_SPOTS:
        file = frame.f_code.co_filename
        if is_job(file):
            spots.append(_spot(frame))
        elif not spots and not _is_ours_or_torch(file):
            if not library and _makes(frame, of) and _passes_on(type(of)):
                takes, given = (), ()  # the job called that class, whose own parameters come first
            else:  # of several the last: a trainer that lets another library do it is what the job calls
                library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        frame = frame.f_back
    return Place(kind, tuple(spots), library, tuple(takes), tuple(given), value) if spots else None


def passed(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the parameters of a method, without self, by position; and of those that were passed."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    names = tuple(
        one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    )
    return names, tuple(dict.fromkeys((*names[: len(args)], *kwargs)))


def _spot(frame: FrameType) -> Spot:
    code, line = frame.f_code, frame.f_lineno or 0
    file = os.path.abspath(code.co_filename)  # noqa: PTH100 - symlinks stay
    positions = getattr(code, "co_positions", None)  # from Python 3.11 on
    if positions is not None:
        _, end_line, _, end_column = next(islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
        if end_line is not None and end_column is not None:
            return Spot(file, line, end_line, end_column, code.co_name)
    return Spot(file, line, function=code.co_name)


@cache
def _job_files() -> JobFiles:
    return JobFiles(str(getattr(sys.modules.get("__main__"), "__file__", "") or ""))


@cache
def is_job(file: str) -> bool:
    """The job's own code: no library, not torch, nothing of ours."""
    return _job_files().is_own(file) and not file.startswith(_torch_folder())


@cache
def _is_ours_or_torch(file: str) -> bool:
    return _job_files().is_python(file) or file.startswith(_torch_folder())


@cache
def _torch_folder() -> str:
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if file else os.devnull  # noqa: PTH120


def _makes(frame: FrameType, of: Any) -> bool:
    """Of a library's class: the constructor that is making it."""
    code = frame.f_code
    return (
        of is not None
        and code.co_name == "__init__"
        and code.co_argcount > 0
        and frame.f_locals.get(code.co_varnames[0]) is of
    )


def _passes_on(kind: type) -> bool:
    """Whether a class takes arguments that it does not name itself."""
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return any(one.kind is one.VAR_KEYWORD for one in parameters)
