"""Attention that a mask mostly leaves out, in steps that torch really runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from dataflow_observed import facts_with_flow, flow_of
from findwall.causes.compute.unneeded_work import FIX_OF
from findwall.dataflow.linking import Flow
from findwall.dataflow.masked_attention import ATTENTION, under_masks
from findwall.fixes import CannotTell, NoUse, all_fixes
from findwall.model.catalogue import UNNEEDED
from fixes.recorded_steps import attending
from speaking import in_words

TOKENS = 512
FIX = all_fixes()["block-sparse-attention"]
Attend = Callable[[torch.Tensor, torch.Tensor], Any]


def documents(count: int) -> torch.Tensor:
    number = torch.arange(TOKENS) // (TOKENS // count)
    return number[:, None] == number


def added(mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))


ATTENTIONS: dict[str, tuple[Attend, tuple[float, float]]] = {
    "packed": (lambda x, m: functional.scaled_dot_product_attention(x, x, x, m), (0.25, 0.25)),
    "by name": (lambda x, m: functional.scaled_dot_product_attention(x, x, x, attn_mask=m), (0.25, 0.25)),
    "additive": (lambda x, m: functional.scaled_dot_product_attention(x, x, x, added(m)), (0.25, 0.25)),
    "of more heads": (
        lambda x, m: functional.scaled_dot_product_attention(x, x, x, m.expand(1, 2, TOKENS, TOKENS)),
        (0.25, 0.25),
    ),
    "unmasked": (lambda x, m: functional.scaled_dot_product_attention(x, x, x), (1.0, 1.0)),
    "causal": (
        lambda x, m: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        (1.0, 1.0),
    ),
    "mostly let through": (
        lambda x, m: functional.scaled_dot_product_attention(x, x, x, ~m),
        (1.0, 1.0),
    ),
}


def attentions(flow: Flow) -> list[int]:
    observed = flow.observed
    return [head for head in flow.heads().tolist() if observed.names[observed.name[head]] == ATTENTION]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_share_is_that_of_the_mask(name: str, tmp_path: Path) -> None:
    attend, shares = ATTENTIONS[name]
    x, mask = torch.randn(1, 2, TOKENS, 8), documents(4)
    flow = flow_of(lambda: attend(x, mask), tmp_path)
    blocks, through = under_masks(flow)
    call = attentions(flow)[0]
    assert (blocks[call], through[call]) == shares


def test_only_the_attention_under_the_mask_is_meant(tmp_path: Path) -> None:
    x, mask = torch.randn(1, 2, TOKENS, 8), documents(4)

    def step() -> None:
        functional.scaled_dot_product_attention(x, x, x)
        functional.scaled_dot_product_attention(x, x, x, mask)
        functional.scaled_dot_product_attention(x, x, x)

    flow = flow_of(step, tmp_path)
    blocks, _ = under_masks(flow)
    assert [blocks[call] for call in attentions(flow)][:3] == [1.0, 0.25, 1.0]


def test_results_are_the_same_bits_while_masks_are_looked_at(tmp_path: Path) -> None:
    x, mask, results = torch.randn(1, 2, TOKENS, 8), documents(4), []

    def step() -> None:
        torch.manual_seed(0)
        dropped = functional.scaled_dot_product_attention(x, x, x, mask, 0.1)
        results.append((dropped, torch.rand(3)))

    flow_of(step, tmp_path)
    assert len(results) == 3
    assert all(torch.equal(a, b) for one in results[1:] for a, b in zip(one, results[0], strict=True))


def test_it_is_unneeded_work_with_its_line_forward_and_backward() -> None:
    facts = attending(64)
    found = facts.unneeded[0]
    assert FIX_OF[found.kind] == "block-sparse-attention" and found.place.startswith("recorded_steps.py:")
    names = {str(facts.op_name(int(atom))) for atom in found.atoms}
    assert any(name.endswith("_backward") for name in names) and len(names) > 1
    assert facts.spent_ms(UNNEEDED) > 0


def test_without_a_mask_there_is_nothing_to_leave_out() -> None:
    facts = attending(64, by_mask=False)
    assert facts.unneeded == ()
    assert isinstance(outcome := FIX.advise(facts), NoUse)
    assert "has a mask" in in_words(outcome)


def test_a_mask_that_nobody_looked_at_is_unknown(tmp_path: Path) -> None:
    """A job that took the function out of its module before it was watched."""
    from torch._C._nn import scaled_dot_product_attention  # as `from torch.nn.functional import …` does

    x, mask = torch.randn(1, 2, TOKENS, 8), documents(4)
    facts = facts_with_flow(lambda: scaled_dot_product_attention(x, x, x, mask), tmp_path)
    assert facts.unneeded == ()
    assert isinstance(outcome := FIX.advise(facts), CannotTell)
    assert "nobody saw" in in_words(outcome)
