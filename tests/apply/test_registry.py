"""What is replaced in a job: in its declared order, undone in any, and never on top of others."""

from __future__ import annotations

import ast
import functools
import gc
import itertools
import re
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import findwall
from findwall.apply.registry import COVERED, IN_PLACE, ORDER, UNDONE, Registry, called_from

INNER, MIDDLE, OUTER = ORDER[0], ORDER[5], ORDER[-1]
ORDERS = list(itertools.permutations((INNER, MIDDLE, OUTER)))


def around(mark: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def marked(*args: Any) -> str:
        return f"{mark}({original(*args)})"

    return marked


class Library:
    """Stands for torch."""

    def __init__(self) -> None:
        class Base:
            def inherited(self) -> str:
                return "plain"

        class Kind(Base):
            def method(self) -> str:
                return "plain"

            @staticmethod
            def static() -> str:
                return "plain"

        self.kind: Any = Kind
        self.module: Any = ModuleType("library")
        self.module.function = lambda: "plain"


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def registry() -> Registry:
    return Registry()


def put(registry: Registry, library: Library, by: str, mark: str, **stays: str) -> Any:
    return registry.wrap(by, library.module, "function", functools.partial(around, mark), **stays)


@pytest.mark.parametrize("came", ORDERS)
@pytest.mark.parametrize("goes", ORDERS)
def test_the_order_is_declared_whoever_comes_and_goes_first(
    came: tuple[str, ...], goes: tuple[str, ...], registry: Registry, library: Library
) -> None:
    original, marks = library.module.function, {INNER: "a", MIDDLE: "b", OUTER: "c"}
    puts = {by: put(registry, library, by, marks[by]) for by in came}
    assert library.module.function() == "c(b(a(plain)))"
    for number, by in enumerate(goes):
        puts[by].undo()
        left = [one for one in (INNER, MIDDLE, OUTER) if one in goes[number + 1 :]]
        told = functools.reduce(lambda inside, one: f"{marks[one]}({inside})", left, "plain")
        assert library.module.function() == told
    assert library.module.function is original and registry.puts == []


@pytest.mark.parametrize("name", ["method", "static", "inherited"])
def test_a_class_is_as_it_was(name: str, registry: Registry, library: Library) -> None:
    kind = library.kind
    before = dict(vars(kind))
    one = registry.wrap(INNER, kind, name, functools.partial(around, "a"))
    assert getattr(kind(), name)() == "a(plain)"
    one.undo()
    one.undo()
    assert dict(vars(kind)) == before and getattr(kind(), name)() == "plain"


def test_what_the_job_wraps_is_left_to_it_and_passed_through(registry: Registry, library: Library) -> None:
    one = put(registry, library, INNER, "a")
    jobs = functools.partial(around("job", library.module.function))
    library.module.function = jobs
    registry.job_ended()
    assert library.module.function is jobs and library.module.function() == "job(plain)"
    assert one.state == COVERED and registry.puts == [one]
    another = put(registry, library, OUTER, "c")  # a second session
    assert library.module.function() == "c(job(plain))"
    another.undo()
    assert library.module.function is jobs and another.state == UNDONE


def test_what_is_covered_is_put_back_once_it_lies_on_top_again(registry: Registry, library: Library) -> None:
    original = library.module.function
    one = put(registry, library, INNER, "a")
    ours = library.module.function
    library.module.function = around("job", ours)
    registry.trace_ended()
    library.module.function = ours  # as a mock does when it is over
    registry.job_ended()
    assert library.module.function is original and one.state == UNDONE


def test_what_was_kept_of_ours_does_nothing_afterwards(registry: Registry, library: Library) -> None:
    one = put(registry, library, INNER, "a")
    kept = library.module.function
    assert kept() == "a(plain)"
    one.undo()
    assert kept() == "plain"


def test_each_goes_when_it_may(registry: Registry, library: Library) -> None:
    puts = [
        put(registry, library, INNER, "a"),
        put(registry, library, MIDDLE, "b", past_trace="needed"),
        put(registry, library, OUTER, "c", past_end="needed"),
    ]
    registry.trace_ended()
    assert library.module.function() == "c(b(plain))"
    registry.job_ended()
    assert library.module.function() == "c(plain)"
    assert [one.state for one in puts] == [UNDONE, UNDONE, IN_PLACE]


def test_the_same_who_comes_again_replaces_what_it_put(registry: Registry, library: Library) -> None:
    first, second = put(registry, library, INNER, "a"), put(registry, library, INNER, "b")
    assert first is second and library.module.function() == "b(plain)" and len(registry.puts) == 1


def test_one_that_cannot_be_made_is_not_put(registry: Registry, library: Library) -> None:
    original = library.module.function

    def fails(_: Any) -> Any:
        raise AttributeError("another torch")

    with pytest.raises(AttributeError):
        registry.wrap(INNER, library.module, "function", fails)
    with pytest.raises(AttributeError):
        registry.wrap(INNER, library.module, "is_not_there", functools.partial(around, "a"))
    assert library.module.function is original and registry.puts == []
    assert not hasattr(library.module, "is_not_there")


def test_values_and_lists_are_as_they_were(registry: Registry, library: Library) -> None:
    items: list[Any] = [1, [], 2]
    registry.set(INNER, library.module, "function", 5)
    registry.set(INNER, library.module, "new", 5)
    registry.add(INNER, "items", items, mine := [])
    registry.add(INNER, "items", items, mine, first=True)
    library.module.new = 6  # the job sets it, too
    assert items[0] is items[-1] is mine
    registry.job_ended()
    assert items == [1, [], 2] and library.module.function() == "plain" and library.module.new == 6
    assert [str(one) for one in registry.puts] == [f"library.new by {INNER}: covered"]


def test_what_has_no_way_back_or_fails_raises_nothing(registry: Registry) -> None:
    registry.hold(INNER, "audit", None, past_end="no way")
    broken = registry.hold(INNER, "broken", lambda: 1 / 0)
    registry.job_ended()
    assert [one.what for one in registry.puts] == ["audit", "broken"] and broken.state == COVERED


def test_nothing_of_the_jobs_is_kept_alive(registry: Registry) -> None:
    class Kept:
        def __init__(self) -> None:
            self.step = lambda: "plain"

    one = Kept()
    registry.wrap(INNER, one, "step", functools.partial(around, "a"))
    known = weakref.ref(one)
    assert one.step() == "a(plain)"
    del one
    gc.collect()
    assert known() is None
    registry.job_ended()
    assert registry.puts == []


def test_who_called_is_found_behind_what_passes_on(registry: Registry) -> None:
    home: Any = ModuleType("home")
    home.function = lambda: None

    def names_caller(_: Any) -> Callable[[], Any]:
        return lambda: called_from(sys._getframe(1))

    registry.wrap(INNER, home, "function", names_caller)
    assert home.function().f_code is sys._getframe().f_code


def test_a_home_may_be_any_object(registry: Registry) -> None:
    home: Any = SimpleNamespace(call=len)
    registry.wrap(INNER, home, "call", functools.partial(around, "a"))
    assert home.call("12") == "a(2)"
    registry.job_ended()
    assert home.call is len


CALLS = {"wrap", "wrapped", "set", "add", "hold"}
SOURCES = [
    path
    for folder in ("agent", "apply", "machine", "probe", "watch", "fixes")
    for path in sorted(Path(findwall.__file__).parent.joinpath(folder).rglob("*.py"))
]


def test_all_who_replace_something_have_a_place_in_the_order() -> None:
    named = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        by = {
            one.targets[0].id: one.value.value
            for one in tree.body
            if isinstance(one, ast.Assign)
            and isinstance(one.targets[0], ast.Name)
            and isinstance(one.value, ast.Constant)
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in {
                f"REGISTRY.{name}" for name in CALLS
            }:
                who = call.args[0]
                if isinstance(who, ast.Constant):
                    named.add(who.value)
                elif isinstance(who, ast.Name) and who.id in by:
                    named.add(by[who.id])
    assert named and named <= set(ORDER)
    assert len(ORDER) == len(set(ORDER))


# As a replacement that goes past the registry would look: a method that is set, a list or a hook of Python's.
PAST_IT = re.compile(
    r"""
    \.__(init|iter|next|call|enter|exit|code|new)__\ =[^=]
    | ^(torch|tensor|kind|home|rules|\w+_class|autograd|functional)(\.\w+)+\ =[^=]
    | \bgc\.(callbacks\.|\w+\ =[^=])
    | \bsys\.(meta_path\.|settrace|setprofile|\w+hook\ =[^=])
    | \bsignal\.signal\(
    | \bsetattr\(
    | \bregister_(module|optimizer)_\w+\(
    """,
    re.VERBOSE,
)
ALLOWED = {
    "agent/launch.py": "signal.signal(signal.SIGINT, signal.SIG_DFL)",  # the process dies of it at once
    "apply/layer_calls.py": "function.__code__ = _calling(name, code)",  # a function of the job's: the fix
    "probe/measuring.py": "setattr(flags, name, ",  # in a process of its own
    "machine/ceilings/gemm.py": "setattr(flags, name, ",
    "agent/tracing/line_marks.py": "sys.settrace(",  # ended by what the registry holds
    "agent/stages/observing.py": "self._puts.append(REGISTRY.hold(BY, 'sys.settrace', ",
    "agent/step_ends/uncompiled.py": "setattr(rules, PATTERN, pattern)",  # what the registry calls to undo it
}
# Not a call of the registry's, but kept by it in the next line.
KEPT = ("hook = optimizers.register_optimizer", "hook = module.register_optimizer")
SETTINGS = ("torch.backends.cudnn.",)  # what a fix is about


def test_nothing_is_replaced_past_it() -> None:
    assert PAST_IT.search("kind.__init__ = make") and PAST_IT.search("torch.nn.Module.eval = told")
    found = []
    for path in SOURCES:
        allowed = ALLOWED.get(path.relative_to(Path(findwall.__file__).parent).as_posix(), "\n")
        if path.name == "registry.py":
            continue
        code = ast.unparse(ast.parse(path.read_text()))  # without comments
        for line in map(str.strip, code.splitlines()):
            if PAST_IT.search(line) and not line.startswith((allowed, *KEPT, *SETTINGS, '"', "'")):
                found.append(f"{path.name}: {line}")
    assert found == []
