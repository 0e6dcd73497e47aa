"""Loops in which each round asks the device for a size: what finds them, and what is said of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.facts.waiting_rounds import waiting_rounds
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.kernels.group_experts import cheaper, plain
from sketch import facts_of, sketch

FIXES = all_fixes()


def rounds(kernels: str, count: int = 12, asks: str = "aten::nonzero") -> Facts:
    """Steps in which a loop launches these kernels and waits for a size, round after round."""
    one = "o" * len(kernels)
    host, device = (one + "ss ") * count, (kernels + "bb ") * count
    timeline = sketch(
        steps=("|" + " " * (len(host) + 1)) * 3,
        cpu=("  " + host) * 3,
        gpu="  " + ("  " + device) * 3,
    )
    names = [asks if name == "aten::item" else name for name in timeline.names]
    return facts_of(replace(timeline, names=names))


def test_rounds_are_found_with_all_that_they_launch() -> None:
    found = waiting_rounds(rounds("kw"))
    assert found is not None and not found.multiplies
    assert found.count == pytest.approx(12, abs=1) and found.ops == 3 and found.loops == 1


@pytest.mark.parametrize("asks", ["aten::item", "aten::_local_scalar_dense"])
def test_a_value_is_no_size(asks: str) -> None:
    """What is only read can be read later: remove-sync."""
    assert waiting_rounds(rounds("kw", asks=asks)) is None


def test_a_few_are_no_loop() -> None:
    assert waiting_rounds(rounds("kw", count=4)) is None


def test_the_loop_goes_to_the_device() -> None:
    facts = rounds("kw")
    advice = FIXES["loop-on-device"].advise(facts)
    assert isinstance(advice, Use) and advice.likely is None  # a bound: it is another program
    assert isinstance(FIXES["group-experts"].advise(facts), NoUse)
    assert isinstance(FIXES["remove-sync"].advise(facts), NoUse)
    graphs = FIXES["cuda-graphs"].advise(facts)
    assert not isinstance(graphs, Use) or graphs.after_others


def test_experts_multiply_in_groups() -> None:
    facts = rounds("xmk")
    advice = FIXES["group-experts"].advise(facts)
    assert isinstance(advice, Use) and advice.likely is not None
    assert isinstance(FIXES["loop-on-device"].advise(facts), NoUse)


@pytest.mark.parametrize("tokens", [1, 7, 64])
@pytest.mark.parametrize("experts", [1, 4, 9])
def test_experts_in_groups_give_the_same(tokens: int, experts: int) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(tokens * experts)
    expert = torch.randint(experts, (tokens,))
    results = []
    for form in (plain, cheaper):
        torch.manual_seed(0)
        given = torch.randn(tokens, 5, dtype=torch.float64, requires_grad=True)
        weights = torch.randn(experts, 5, 3, dtype=torch.float64, requires_grad=True)
        out = form(torch, given, expert, weights)
        (out.sin().sum()).backward()
        results.append((out, given.grad, weights.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
