"""Which parts of a model are its blocks, and the code that leads to them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from findwall.fixes.compiler.repeated_blocks import repeated  # noqa: E402 - torch may be missing


class Block(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)


class Model(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def found(model: Any) -> list[tuple[str, int, bool]]:
    return [(one.path, len(one.blocks), one.is_all) for one in repeated(model)]


def test_a_list_of_them_is_named_by_the_code_that_leads_to_it() -> None:
    tower = Model(words=nn.Embedding(4, 2), layers=nn.ModuleList([Block() for _ in range(3)]))
    assert found(tower) == [(".layers", 3, True)]
    assert found(Model(module=tower)) == [(".module.layers", 3, True)]
    assert found(nn.Sequential(nn.Flatten(), tower)) == [("[1].layers", 3, True)]
    assert found(nn.Sequential(Block(), Block())) == [("", 2, True)]


def test_parts_beside_others_are_blocks_too() -> None:
    assert found(Model(one=Block(), two=Block(), head=nn.Linear(2, 2))) == [("", 2, False)]


def test_sequences_are_no_blocks_but_hold_them() -> None:
    stages = {f"stage{at}": nn.Sequential(Block(), Block()) for at in range(2)}
    assert found(Model(**stages)) == [(".stage0", 2, True), (".stage1", 2, True)]


def test_single_layers_and_parts_that_are_one_of_a_kind_are_none() -> None:
    assert found(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == []
    assert found(Model(one=Block(), head=nn.Linear(2, 2))) == []


def test_blocks_within_blocks_go_with_them() -> None:
    outer = [Model(inner=nn.ModuleList([Block(), Block()])) for _ in range(2)]
    assert found(nn.ModuleList(outer)) == [("", 2, True)]
