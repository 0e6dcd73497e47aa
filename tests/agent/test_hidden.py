"""Our own code is not for the job's compiler, which is told so in one go."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent.step_ends import hooks, optimizerhooks, uncompiled


class Rules:
    """As torch's own: every name that is added compiles a pattern of all, by a function of the module."""

    def __init__(self, fails_at: int = -1) -> None:
        self.names: list[str] = []
        self.compiled = 0
        self.fails_at = fails_at
        self._recompile_re: Any = self.compile_pattern

    def compile_pattern(self) -> None:
        self.compiled += 1
        self.pattern = re.compile("|".join(map(re.escape, self.names)))

    def add(self, name: str) -> None:
        if len(self.names) == self.fails_at:
            raise RuntimeError("another torch")
        self.names.append(name)
        self._recompile_re()


@pytest.mark.parametrize("fails_at", [-1, 3])
def test_all_names_are_compiled_once_and_torch_is_left_as_it_was(fails_at: int) -> None:
    rules: Any = Rules(fails_at)
    usual = rules._recompile_re
    uncompiled.hide_from(SimpleNamespace(trace_rules=rules))
    assert rules.compiled == 1 and rules._recompile_re == usual
    assert len(rules.names) == (fails_at if fails_at >= 0 else len(uncompiled._ours()))
    assert all(rules.pattern.fullmatch(name) for name in rules.names)


def test_a_torch_without_such_a_pattern_is_told_name_by_name() -> None:
    told: list[str] = []
    uncompiled.hide_from(SimpleNamespace(trace_rules=SimpleNamespace(add=told.append)))
    assert set(told) == uncompiled._ours()


def test_the_real_compiler_skips_our_files_until_they_are_shown_again() -> None:
    import torch._dynamo

    rules: Any = torch._dynamo.trace_rules
    before, dirs = rules.SKIP_DIRS_RE, list(rules.SKIP_DIRS)
    show = uncompiled.hide_from(torch._dynamo)
    assert rules.SKIP_DIRS_RE.match(hooks.__file__) and not rules.SKIP_DIRS_RE.match(optimizerhooks.__file__)
    show()
    assert rules.SKIP_DIRS_RE is before and dirs == rules.SKIP_DIRS
    show = uncompiled.hide_from(torch._dynamo)
    rules.add("json")
    show()
    assert not rules.SKIP_DIRS_RE.match(hooks.__file__) and rules.SKIP_DIRS_RE.match(json.__file__)
    rules.SKIP_DIRS.pop()
    rules._recompile_re()
