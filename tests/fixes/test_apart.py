"""A fix never imports a fix: what two of them need lies beside them, in a file that is none."""

from __future__ import annotations

import ast
import inspect

import pytest

from findwall.fixes import fix_modules


@pytest.mark.parametrize("fix", sorted(fix_modules()))
def test_a_fix_imports_no_other(fix: str) -> None:
    others = {module.__name__ for module in fix_modules().values()}
    for node in ast.walk(ast.parse(inspect.getsource(fix_modules()[fix]))):
        if isinstance(node, ast.ImportFrom):
            named = {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
            assert not named & others
        elif isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & others


def test_a_fix_is_in_the_folder_of_its_kind() -> None:
    kinds = {module.__name__.split(".")[2] for module in fix_modules().values()}
    assert len(kinds) <= 8
    assert all(module.__name__.count(".") == 3 for module in fix_modules().values())
