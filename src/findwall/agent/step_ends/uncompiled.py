"""Keep torch's compiler away from findwall's own code.

Code that runs beside a compiled region is offered to the compiler too: ours is not for it. Its list of what
to leave alone gets our modules, and loses them again once nothing of ours lies in torch any more.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from findwall.agent.importhook import when_imported
from findwall.agent.step_ends import optimizerhooks
from findwall.apply.job_files import OWN
from findwall.apply.registry import REGISTRY, UNDONE, Layer, Put

BY = "steps"
DIRS, PATTERN = "SKIP_DIRS", "SKIP_DIRS_RE"
WHAT = f"torch._dynamo.trace_rules.{DIRS}"
READS = "the compiler may read what of ours is still in torch"

_hidden: Put | None = None


def hide_from_compiler() -> None:
    """Now, or as soon as the job imports the compiler."""
    global _hidden
    if _hidden is not None and _hidden.state != UNDONE:
        return
    shows: list[Callable[[], None]] = []

    def take_back() -> bool:
        if any(isinstance(put, Layer) for put in REGISTRY.puts):
            return False
        while shows:
            shows.pop()()
        return True

    _hidden = REGISTRY.hold(BY, WHAT, take_back, past_trace=READS)
    when_imported("torch._dynamo", lambda dynamo: shows.append(hide_from(dynamo)), BY, READS)


def hide_from(dynamo: Any) -> Callable[[], None]:
    """Returns what shows our code again."""
    before: list[str] = []
    pattern = None
    with contextlib.suppress(Exception):  # inside the job's import, in private parts: a slower compile then
        rules = dynamo.trace_rules
        before, pattern = list(getattr(rules, DIRS, ())), getattr(rules, PATTERN, None)
        with _compiled_once(rules):
            for name in _ours():
                rules.add(name)
    return lambda: _show(dynamo.trace_rules, before, pattern)


def _show(rules: Any, before: list[str], pattern: Any) -> None:
    """The job may have added to the list as well: that stays."""
    dirs = getattr(rules, DIRS)
    dirs[:] = [one for one in dirs if one in before or not one.startswith(OWN)]
    if dirs == before:
        setattr(rules, PATTERN, pattern)
    else:
        rules._recompile_re()


@contextlib.contextmanager
def _compiled_once(rules: Any) -> Iterator[None]:
    """Every name that is added compiles one long pattern of all anew: a second for a hundred of ours."""
    if not hasattr(rules, "_recompile_re"):  # another torch
        yield
        return
    try:
        with REGISTRY.wrapped(BY, rules, "_recompile_re", lambda _: lambda: None):
            yield
    finally:
        rules._recompile_re()


def _ours() -> set[str]:
    """The modules that run beside a job; the other stages as a whole, as each name more makes all the others
    slower to add."""
    found = set()
    for name, module in list(sys.modules.items()):
        stage = ".".join(name.split(".")[:2])
        if stage == "findwall.agent":
            if module is not optimizerhooks and not hasattr(module, "__path__"):
                found.add(name)
        elif name.startswith("findwall."):
            found.add(stage)
    return found
