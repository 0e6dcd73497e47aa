"""Every regular expression of the package, and texts made to keep each of them busy.

A pattern is taken where it is compiled: as the modules are imported, and from calls of `re` in the source.
From its own structure come the texts: each repeated part, many times, behind what leads to it and before what
cannot follow. A pattern that reads a text in one go is done with any of them; one that tries all ways is not.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec

import findwall
from findwall.readers.allowance import LONGEST_TEXT
from soak.hang import HangError, hang_guard

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_constants as codes
    import sre_parse

SOURCE = Path(next(iter(findwall.__path__)))
PATTERN_S = 10.0  # for one pattern: a thousand times what it takes
LONG_ENOUGH = 60  # characters of a text, to know it by
SHORT = 1_000  # characters: enough to see which text is the worst
NEVER = "\ufffe"  # stands in no pattern
# What people who write such files think of, whatever the pattern.
FAMILIAR = (
    "a",
    "A",
    "0",
    " ",
    "\n",
    "_",
    "(",
    "[",
    "<",
    "::",
    "a:",
    "0,",
    "a.",
    "[[",
    "{",
    '"',
    "\\",
    "a b ",
)
FROM_THE_START = frozenset({"match", "fullmatch"})
METHODS = FROM_THE_START | {"search", "sub", "subn", "split", "findall", "finditer"}
ASKED_IN_A_LOOP = {("findwall.report.redacted", "_NODE"): {"fullmatch"}}
NOT_IMPORTED = ("findwall.demo.", "findwall.integrations.", "findwall.__main__")


class AtRisk(msgspec.Struct):
    """One pattern, and how the package asks it."""

    pattern: re.Pattern[Any]
    methods: frozenset[str] = frozenset({"search", "fullmatch"})  # where nobody knows: the worst

    def ways(self) -> list[Callable[[Any], Any]]:
        """One of those that begin anywhere is as good as another."""
        names = {one if one in FROM_THE_START else "search" for one in self.methods}
        return [getattr(self.pattern, name) for name in sorted(names)]


def all_patterns() -> list[AtRisk]:
    """All of the package's, each once."""
    found: dict[str, AtRisk] = {}
    for pattern in chain(_compiled_in_modules(), _given_where_used()):
        found[repr(pattern)] = AtRisk(pattern)
    asked = _methods()
    for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "findwall"]:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and (known := asked[module.__name__, name]):
                found[repr(value)] = AtRisk(value, frozenset(known))
    return list(found.values())


def _compiled_in_modules() -> list[re.Pattern[Any]]:
    found: list[re.Pattern[Any]] = []
    make = re.compile

    def noted(pattern: Any, flags: Any = 0) -> re.Pattern[Any]:
        made: re.Pattern[Any] = make(pattern, flags)
        if str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == "findwall":
            found.append(made)
        return made

    re.compile = noted  # type: ignore[assignment]
    try:
        for info in pkgutil.walk_packages(findwall.__path__, "findwall."):
            if not info.name.startswith(NOT_IMPORTED):
                importlib.import_module(info.name)
    finally:
        re.compile = make
    return found


def _calls() -> Iterator[tuple[str, str, str, ast.expr | None]]:
    """(module, name, method, first argument) of every call of a method of something that has a name."""
    for file in SOURCE.rglob("*.py"):
        module = ".".join(["findwall", *file.relative_to(SOURCE).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                of = node.value
                yield module, of.id if isinstance(of, ast.Name) else of.attr, node.attr, None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                of = node.func.value
                if isinstance(of, ast.Name):
                    yield module, of.id, node.func.attr, node.args[0]


def _given_where_used() -> Iterator[re.Pattern[Any]]:
    """To `re.sub` and the like."""
    for _, of, method, first in _calls():
        if of == "re" and method != "compile" and isinstance(first, ast.Constant):
            yield re.compile(first.value)


def _methods() -> dict[tuple[str, str], set[str]]:
    """How a module's pattern is asked: a private one in its module alone. Not known: it is handed on."""
    found = defaultdict[tuple[str, str], set[str]](set, ASKED_IN_A_LOOP)
    everywhere = defaultdict[str, set[str]](set)
    for module, of, method, _ in _calls():
        if method in METHODS:
            found[module, of].add(method)
            everywhere[of].add(method)
    for module, of in list(found):
        if not of.startswith("_"):
            found[module, of] |= everywhere[of]
    return found


def slow_texts(one: AtRisk, most: int) -> list[Callable[[int], Any]]:
    """The texts that keep it longest, most of all first; each of any length."""
    timed = []
    for text in _attacks(one.pattern):
        given = text(SHORT)
        begin = time.perf_counter()
        for way in one.ways():
            way(given)
        timed.append((time.perf_counter() - begin, text))
    timed.sort(key=lambda pair: -pair[0])
    return [text for _, text in timed[:most]]


def _attacks(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], Any]]:
    is_bytes = isinstance(pattern.pattern, bytes)
    source = pattern.pattern.decode("latin-1") if is_bytes else pattern.pattern
    parsed = sre_parse.parse(source, pattern.flags & ~re.UNICODE)
    heads = {"", *_heads(parsed, "")}
    bodies = {*FAMILIAR, *_bodies(parsed), *_literals(parsed)} - {""}
    bodies |= {one * 8 + other for one, other in product(sorted(_bodies(parsed)), repeat=2)}

    def text_of(head: str, body: str, tail: str) -> Callable[[int], Any]:
        def text(length: int) -> Any:
            made = head + body * max((length - len(head)) // len(body), 1) + tail
            return made.encode("utf-8") if is_bytes else made

        return text

    for head, body in product(sorted(heads), sorted(bodies)):
        yield text_of(head, body, NEVER)


def _heads(parsed: Any, before: str) -> Iterator[str]:
    """What leads to each repeated part."""
    for op, argument in parsed:
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            yield before
        for inner in _inside(op, argument):
            yield from _heads(inner, before)
        before += _sample([(op, argument)])


def _bodies(parsed: Any) -> set[str]:
    """What is repeated without a bound, or nearly."""
    found: set[str] = set()
    for op, argument in parsed:
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT) and argument[1] > 8:
            found |= {_sample(argument[2]), _sample(argument[2], 1)} - {""}
        for inner in _inside(op, argument):
            found |= _bodies(inner)
    return found


def _literals(parsed: Any) -> set[str]:
    found = {chr(argument) for op, argument in parsed if op is codes.LITERAL}
    for op, argument in parsed:
        for inner in _inside(op, argument):
            found |= _literals(inner)
    return found


def _inside(op: Any, argument: Any) -> list[Any]:
    if op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return [argument[2]]
    if op is codes.SUBPATTERN:
        return [argument[3]]
    if op is codes.BRANCH:
        return list(argument[1])
    return [argument[1]] if op in (codes.ASSERT, codes.ASSERT_NOT) else []


def _sample(parsed: Any, which: int = 0) -> str:
    """A text that this matches."""
    said = []
    for op, argument in parsed:
        if op is codes.LITERAL:
            said.append(chr(argument))
        elif op in (codes.NOT_LITERAL, codes.ANY):
            said.append("x" if argument != ord("x") else "y")
        elif op is codes.IN:
            said.append(_member(argument, which))
        elif op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = argument
            said.append(_sample(inner, which) * max(least, min(1 - which, most)))
        elif op is codes.SUBPATTERN:
            said.append(_sample(argument[3], which))
        elif op is codes.BRANCH:
            said.append(_sample(argument[1][which % len(argument[1])], which))
    return "".join(said)


CATEGORIES = {
    codes.CATEGORY_DIGIT: "0",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_DIGIT: "x",
    codes.CATEGORY_NOT_SPACE: "x",
    codes.CATEGORY_NOT_WORD: "-",
}


def _member(choices: Any, which: int) -> str:
    """A character of a class."""
    found = []
    for op, argument in choices:
        if op is codes.LITERAL:
            found.append(chr(argument))
        elif op is codes.RANGE:
            found.append(chr(argument[0]))
        elif op is codes.CATEGORY:
            found.append(CATEGORIES[argument])
    if choices[0][0] is codes.NEGATE:
        return next(one for one in "xya0 -:,." if one not in found)
    return found[which % len(found)]


def endless(one: AtRisk, length: int, texts: int) -> str:
    """The text that it is not done with in time; nothing where it is done with all."""
    said = "a short text"
    try:
        with hang_guard(PATTERN_S):
            for text in slow_texts(one, texts):
                given = text(length)
                said = f"{text(LONG_ENOUGH)!r} and on"
                for way in one.ways():
                    way(given)
    except HangError:
        return f"{one.pattern!r} is not done with {said}"
    return ""


def main(part: int = 0, parts: int = 1, texts: int = 3) -> int:
    """Of every pattern, or of one in so many, the texts that keep it longest."""
    patterns = all_patterns()[part::parts]
    found = [said for one in patterns if (said := endless(one, LONGEST_TEXT, texts))]
    print("\n".join([f"{len(patterns)} patterns", *found]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
