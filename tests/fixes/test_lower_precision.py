"""Numbers of 64 bits that leaked in."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts
from findwall.facts.number_formats import in_fp64
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.predict import predict
from speaking import in_words


@cache
def windowed(dtype: torch.dtype) -> Facts:
    """A loss through a window that comes from NumPy, whose numbers are of 64 bits."""
    model, window = torch.nn.Linear(256, 256), torch.hann_window(256, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        model(torch.randn(256, 256)).mul(window).square().log1p().tanh().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(step, Path(folder))


def test_what_a_double_touches_is_double() -> None:
    facts = windowed(torch.float64)
    outcome = all_fixes()["lower-precision"].advise(facts)
    assert isinstance(outcome, Use) and "work in fp64 takes" in in_words(outcome)
    said = predict(facts, {"lower-precision": outcome})
    assert said is not None and said.mid < facts.step


def test_without_one_nothing_is() -> None:
    facts = windowed(torch.float32)
    assert len(in_fp64(facts)) == 0
    assert isinstance(all_fixes()["lower-precision"].advise(facts), NoUse)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_matrices_of_whole_numbers_are_multiplied_as_floats(dtype: torch.dtype) -> None:
    liked, weight = torch.randint(0, 2, (200, 200)).to(dtype), torch.randn(64, 64, requires_grad=True)
    torch.testing.assert_close(liked.T @ liked, (liked.float().T @ liked.float()).to(dtype))

    def step() -> None:
        (weight.square().sum() * (liked.T @ liked).sum()).backward()

    with tempfile.TemporaryDirectory() as folder:
        outcome = all_fixes()["lower-precision"].advise(facts_with_flow(step, Path(folder)))
    assert isinstance(outcome, Use) == (dtype == torch.int64)
    if isinstance(outcome, Use):
        assert "products of whole numbers take" in in_words(outcome)
