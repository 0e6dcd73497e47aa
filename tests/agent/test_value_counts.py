"""How much of an attention its mask lets through, as it is counted beside the job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent.tracing import value_counts
from findwall.agent.tracing.value_counts import MOST_MASKS, Masks, counted, once_each

torch = pytest.importorskip("torch")


def by_hand(let: Any) -> str:
    """Block by block."""
    found = every = 0
    for sample in let.reshape(-1, *let.shape[-2:]):
        for row in range(0, sample.shape[0], 128):
            for column in range(0, sample.shape[1], 128):
                found += bool(sample[row : row + 128, column : column + 128].any())
                every += 1
    return f"{int(let.sum())}/{let.numel()} {found}/{every}"


def window(tokens: int, width: int) -> Any:
    apart = torch.arange(tokens)[:, None] - torch.arange(tokens)
    return (apart >= 0) & (apart < width)


def packed(*lengths: int) -> Any:
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return sequence[:, None] == sequence


MASKS = {
    "a window": window(512, 100),
    "no whole blocks": window(300, 20),
    "packed sequences": packed(100, 200, 140, 71)[None, None],
    "samples of their own": torch.stack([window(256, 3), packed(128, 128)])[:, None],
    "keys of each sample": (torch.arange(400) < 130).view(1, 1, 1, 400),
    "more keys than queries": window(500, 9)[-140:],
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("at_once", [1 << 24, 1 << 14])
def test_positions_and_blocks_are_those_of_the_mask(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_counts, "AT_ONCE", at_once)
    let = MASKS[name]
    assert counted(torch, let) == by_hand(let)
    for dtype, least in (
        (torch.float32, float("-inf")),
        (torch.float32, -1e9),
        (torch.bfloat16, float(torch.finfo(torch.bfloat16).min)),
        (torch.float16, float(torch.finfo(torch.float16).min)),
    ):
        added = torch.zeros(let.shape, dtype=dtype).masked_fill(~let, least)
        assert counted(torch, added) == by_hand(let)


def test_a_bias_leaves_nothing_out() -> None:
    bias = -torch.arange(256.0).repeat(256, 1) * 100
    assert counted(torch, bias) == by_hand(torch.ones(256, 256))


def test_what_is_expanded_is_counted_once() -> None:
    let = window(256, 10)
    assert once_each(let.expand(4, 8, 256, 256)).shape == (1, 1, 256, 256)
    assert once_each((torch.arange(256) < 9).expand(256, 256)).shape == (1, 256)


class Told:
    """The ranges that are told, with the torch that tells them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        told = self.names

        class Range:
            def __init__(self, name: str) -> None:
                told.append(name)

            def __enter__(self) -> None: ...
            def __exit__(self, *how: Any) -> None: ...

        self.torch = SimpleNamespace(
            **{name: getattr(torch, name) for name in ("Tensor", "bool", "finfo", "nn", "stack", "cuda")},
            autograd=SimpleNamespace(profiler=SimpleNamespace(record_function=Range)),
        )

    @property
    def masks(self) -> list[str]:
        return [name for name in self.names if name.startswith("findwall::mask ")]


def test_a_mask_of_many_layers_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told, masks, looks = Told(), Masks(), []

    def looked(*given: Any) -> str:
        looks.append(given)
        return counted(*given)

    monkeypatch.setattr(value_counts, "counted", looked)
    mask = window(256, 10)
    for _ in range(6):
        masks.count(told.torch, {"attn_mask": mask[None, None]})
    assert len(looks) == 1 and len(told.masks) == 6
    mask[:, 0] = True
    masks.count(told.torch, {"attn_mask": mask[None, None]})
    assert len(looks) == 2 and told.masks[-1] != told.masks[0]


def test_another_mask_at_the_same_place_is_another() -> None:
    told, masks = Told(), Masks()
    for width in (3, 200):
        mask = window(256, width)
        masks.count(told.torch, {"attn_mask": mask})
        del mask  # its memory may be given to the next
    assert len(set(told.masks)) == 2


def test_few_masks_are_looked_at() -> None:
    told, masks = Told(), Masks()
    kept = [window(256, width) for width in range(1, MOST_MASKS + 4)]
    for mask in kept:
        masks.count(told.torch, {"attn_mask": mask})
    assert len(told.masks) == MOST_MASKS


def test_nothing_is_told_of_what_is_no_mask_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    told, masks = Told(), Masks()
    for given in ({}, {"attn_mask": None}, {"attn_mask": window(128, 3)}):
        masks.count(told.torch, given)
    monkeypatch.setattr(value_counts, "MOST_POSITIONS", 1000)
    masks.count(told.torch, {"attn_mask": window(256, 3)})
    assert told.masks == []


def test_the_draws_and_the_mask_stay_as_they_are() -> None:
    mask = torch.zeros(256, 256).masked_fill(~window(256, 5), float("-inf")).requires_grad_()
    before, state, version = mask.detach().clone(), torch.get_rng_state(), mask._version
    Masks().count(torch, {"attn_mask": mask})
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(mask.detach(), before)
    assert mask._version == version and mask.grad is None
