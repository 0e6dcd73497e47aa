"""The blocks that a model repeats, compiled one by one as it is called first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from findwall.apply.applying import Effect
from findwall.apply.roots import roots
from findwall.fixes.compiler.compiling import CALLED, Made

EACH = "each"  # the value is what holds them, and nothing else is in it
NO_BLOCKS = "the model repeats no block: its parts are of different classes, or single layers"
TORCHS = "the blocks that the model repeats are of torch's own classes, which the compiler passes by"


def compile_blocks(torch: Any, effect: Effect) -> None:
    """In each outermost module; what the compiler made of them is the proof."""
    if not hasattr(torch.nn.Module, "compile"):
        effect.cannot(f"torch {torch.__version__} cannot compile a module in place")
        return
    told: list[str] = []

    def compiled(module: Any, _args: tuple[Any, ...]) -> None:
        effect.missed(NO_BLOCKS)
        for group in repeated(module):
            kind = type(group.blocks[0])
            if kind.__module__.startswith("torch."):
                effect.missed(TORCHS)
                continue
            for block in group.blocks:
                block.compile()
            alone = group.is_all and hasattr(group.holder, "__iter__")  # as a list of layers is
            effect.at(CALLED, value=group.path if alone else kind.__name__, given=[EACH] * alone)
            told.append(f", for {len(group.blocks)} times {kind.__name__}")

    roots(torch).tell(compiled)
    effect.at_end(lambda: Made(torch).told(effect, "".join(told)))


class Group(msgspec.Struct, frozen=True):
    """Parts of one class that a module holds."""

    holder: Any
    path: str  # from the model to it, as code: ".layers", "[0].blocks"
    blocks: list[Any]
    is_all: bool  # it holds nothing else


def repeated(module: Any, path: str = "") -> Iterator[Group]:
    """Where the parts of a module are several of one class that have parts themselves: the outermost such."""
    parts = dict(module.named_children())
    kinds: dict[type, list[Any]] = {}
    for part in parts.values():
        if next(part.children(), None) is not None:
            kinds.setdefault(type(part), []).append(part)
    alike = [blocks for kind, blocks in kinds.items() if len(blocks) > 1 and not _only_holds(kind)]
    for blocks in alike:
        yield Group(module, path, blocks, len(blocks) == len(parts))
    inside = {id(block) for blocks in alike for block in blocks}
    for name, part in parts.items():
        if id(part) not in inside:
            yield from repeated(part, path + (f"[{name}]" if name.isdigit() else f".{name}"))


def _only_holds(kind: type) -> bool:
    """A list or a sequence: what is alike in several of them is inside."""
    return kind.__module__ == "torch.nn.modules.container"
