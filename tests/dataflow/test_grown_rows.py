"""Tokens that an earlier pass has worked on, in steps that torch really runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from dataflow_observed import facts_with_flow, flow_of
from findwall.dataflow.grown_rows import new_rows
from findwall.fixes import NoUse, Use, all_fixes

PROMPT, NEW = 24, 4


class Decoder(nn.Module):
    """Two layers of attention."""

    def __init__(self, size: int, attention: str) -> None:
        super().__init__()
        self.attention = attention
        self.tokens, self.places = nn.Embedding(64, size), nn.Embedding(PROMPT + NEW, size)
        self.mixed = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(2))
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(2))
        self.out = nn.Linear(size, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for mixed, layer in zip(self.mixed, self.layers, strict=True):
            heads = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in mixed(x).chunk(3, -1))
            x = x + layer(self.attend(*heads).transpose(1, 2).flatten(2)).relu()
        return self.out(x[:, -1])

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.attention in ("back", "both ways"):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.attention == "back")
        scores = q @ k.transpose(-2, -1)
        if self.attention == "by hand":
            ahead = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(ahead, float("-inf"))
        return scores.softmax(-1) @ v


class Job:
    def __init__(self, attention: str, size: int = 32, batch: int = 2) -> None:
        self.model, self.batch = Decoder(size, attention).eval(), batch

    @torch.no_grad()
    def whole(self) -> None:
        ids = torch.randint(0, 64, (self.batch, PROMPT))
        for _ in range(NEW):
            ids = torch.cat([ids, self.model(ids).argmax(-1, keepdim=True)], 1)

    @torch.no_grad()
    def windows(self) -> None:
        """The same length again, of other tokens."""
        ids = torch.randint(0, 64, (self.batch, PROMPT))
        for _ in range(NEW):
            self.model(ids)
            ids = torch.cat([ids[:, 1:], torch.zeros(self.batch, 1, dtype=torch.long)], 1)


@pytest.mark.parametrize("attention", ["back", "by hand"])
def test_old_tokens_are_worked_on_again(attention: str, tmp_path: Path) -> None:
    flow = flow_of(Job(attention).whole, tmp_path)
    new, by = new_rows(flow)
    names = [flow.observed.names[flow.observed.name[head]] for head in by]
    # In each but the first pass of the iteration: two layers with two products each, none for what is read.
    assert names.count("aten::linear") == (NEW - 1) * 4
    assert new[min(by)] == pytest.approx(1 / (PROMPT + 1))
    assert {flow.observed.names[flow.observed.name[one]] for one in by.values()} == {"aten::cat"}


@pytest.mark.parametrize("attention", ["both ways", "by hand, without a mask"])
def test_where_attention_looks_ahead_old_tokens_change(attention: str, tmp_path: Path) -> None:
    flow = flow_of(Job(attention).whole, tmp_path)
    _, by = new_rows(flow)
    assert sum(flow.observed.names[flow.observed.name[head]] == "aten::linear" for head in by) <= NEW - 1


def test_the_fix_names_where_old_and_new_are_put_together(tmp_path: Path) -> None:
    facts = facts_with_flow(Job("back", size=256, batch=8).whole, tmp_path)
    outcome = all_fixes()["kv-cache"].advise(facts)
    assert isinstance(outcome, Use)
    lines = Path(__file__).read_text().splitlines()
    assert "torch.cat([ids, " in lines[int(str(outcome.claim.figures["pick"]).rpartition(":")[2]) - 1]


def test_what_never_grew_has_no_old_tokens(tmp_path: Path) -> None:
    model = Decoder(32, "back").eval()

    @torch.no_grad()
    def step() -> None:
        model(torch.randint(0, 64, (2, PROMPT)))

    facts = facts_with_flow(step, tmp_path)
    assert isinstance(all_fixes()["kv-cache"].advise(facts), NoUse)
