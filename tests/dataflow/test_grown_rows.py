"""Tokens that an earlier pass has worked on, in steps that torch really runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

import token_models
from dataflow_observed import facts_with_flow, flow_of
from findwall.dataflow.grown_rows import new_rows
from findwall.fixes import NoUse, Use, all_fixes
from token_models import NEW, PROMPT, Decoder, Job


@pytest.mark.parametrize("attention", ["back", "by hand"])
def test_old_tokens_are_worked_on_again(attention: str, tmp_path: Path) -> None:
    flow = flow_of(Job(attention).whole, tmp_path)
    new, by = new_rows(flow)
    names = [flow.observed.names[flow.observed.name[head]] for head in by]
    # In each but the first pass of the iteration: two layers with two products each, none for what is read.
    assert names.count("aten::linear") == (NEW - 1) * 4
    assert new[min(by)] == pytest.approx(1 / (PROMPT + 1))
    assert {flow.observed.names[flow.observed.name[one]] for one in by.values()} == {"aten::cat"}


def test_a_buffer_that_is_filled_further_holds_old_tokens(tmp_path: Path) -> None:
    flow = flow_of(Job("back").buffered, tmp_path)
    new, by = new_rows(flow)
    names = [flow.observed.names[flow.observed.name[head]] for head in by]
    assert names.count("aten::linear") == (NEW - 1) * 4
    assert new[min(by)] == pytest.approx(1 / (PROMPT + 1))


def test_a_buffer_that_is_filled_anew_holds_none(tmp_path: Path) -> None:
    model, ids = Decoder(32, "back").eval(), torch.zeros(2, PROMPT + NEW, dtype=torch.long)

    @torch.no_grad()
    def step() -> None:
        for at in range(PROMPT, PROMPT + NEW):
            ids[:, :at] = torch.randint(0, 64, (2, at))  # another text, a token longer
            model(ids[:, :at])

    assert new_rows(flow_of(step, tmp_path))[1] == {}


@pytest.mark.parametrize("attention", ["both ways", "by hand, without a mask"])
def test_where_attention_looks_ahead_old_tokens_change(attention: str, tmp_path: Path) -> None:
    flow = flow_of(Job(attention).whole, tmp_path)
    _, by = new_rows(flow)
    assert sum(flow.observed.names[flow.observed.name[head]] == "aten::linear" for head in by) <= NEW - 1


def test_the_fix_names_where_old_and_new_are_put_together(tmp_path: Path) -> None:
    facts = facts_with_flow(Job("back", size=256, batch=8).whole, tmp_path)
    outcome = all_fixes()["kv-cache"].advise(facts)
    assert isinstance(outcome, Use)
    lines = Path(token_models.__file__).read_text().splitlines()
    assert "torch.cat([ids, " in lines[int(str(outcome.claim.figures["pick"]).rpartition(":")[2]) - 1]


def test_where_a_step_is_one_token_the_bound_alone_is_told(tmp_path: Path) -> None:
    """A text's first pass is whole, and none of the steps that were seen."""
    model, ids, at = Decoder(256, "back").eval(), torch.zeros(8, 256, dtype=torch.long), [PROMPT]
    model.places = torch.nn.Embedding(256, 256)

    @torch.no_grad()
    def step() -> None:
        ids[:, at[0]] = model(ids[:, : at[0]]).argmax(-1)
        at[0] += 1

    # Four are followed where a step is guessed.
    outcome = all_fixes()["kv-cache"].advise(facts_with_flow(step, tmp_path, iterations=4))
    assert isinstance(outcome, Use) and outcome.likely is None


def test_what_never_grew_has_no_old_tokens(tmp_path: Path) -> None:
    model = Decoder(32, "back").eval()

    @torch.no_grad()
    def step() -> None:
        model(torch.randint(0, 64, (2, PROMPT)))

    facts = facts_with_flow(step, tmp_path)
    assert isinstance(all_fixes()["kv-cache"].advise(facts), NoUse)
