"""16-bit models on cores that are faster in fp32: what leaving 16 bits gives, and when it is not said."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from msgspec.structs import replace

from dataflow_observed import facts_with_flow
from findwall.examine.establish import establish
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.at_best import step_at_best
from findwall.fixes.predict import predict
from findwall.model.machine import Ceilings
from speaking import in_words

FIX = all_fixes()["full-precision"]
SLOW = {"fp32": 4e11, "bf16": 2e9, "fp16": 2e9}  # whatever these cores are: faster in fp32
FAST = {"fp32": 4e11, "bf16": 4e11, "fp16": 8e11}


@cache
def recorded(dtype: torch.dtype, autocast: bool = False) -> Facts:
    """Two layers: saved in 16 bits and served, or trained in fp32 under autocast."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def trained() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(torch.randn(64, 256)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def served() -> None:
        with torch.inference_mode():
            model(torch.randn(64, 256).to(dtype)).float().sum().item()

    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(trained if autocast else served, Path(folder))


def measured(facts: Facts, flops: dict[str, float]) -> Facts:
    """The same on cores of stated rates."""
    known = Ceilings("Some CPU, 2 cores", "measured", flops=flops, bandwidth=2e11)
    found = establish(replace(facts.run, ceilings=known), facts.rank, known, None, "trace")
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_sixteen_bits_is_made_fp32(dtype: torch.dtype) -> None:
    facts = measured(recorded(dtype), SLOW)
    found = FIX.advise(facts)
    assert isinstance(found, Use), in_words(found)
    assert "`.float()`" in in_words(found) and "200.0 times as fast" in in_words(found)
    told, best = predict(facts, {"full-precision": found}), step_at_best(FIX, found, facts)
    assert told is not None and best < told.mid < facts.step and told.mid < told.high


def test_autocast_is_taken_out_with_its_casts() -> None:
    facts = measured(recorded(torch.float32, autocast=True), SLOW)
    found = FIX.advise(facts)
    assert isinstance(found, Use), in_words(found)
    assert in_words(found).startswith("Take `torch.autocast` out") and "goes to casts" in in_words(found)


@pytest.mark.parametrize("facts", [lambda: recorded(torch.float16), lambda: recorded(torch.float32, True)])
def test_nothing_is_said_where_sixteen_bits_are_as_fast(facts: object) -> None:
    assert callable(facts)
    found = FIX.advise(measured(facts(), FAST))
    assert isinstance(found, NoUse) and "about as fast as fp32" in in_words(found)


def test_what_was_not_measured_is_unknown() -> None:
    found = FIX.advise(measured(recorded(torch.float16), {"fp32": 4e11, "bf16": 2e9}))
    assert not isinstance(found, (Use, NoUse)) and "fp16 numbers is unknown" in in_words(found)


def test_a_model_in_fp32_is_there() -> None:
    assert isinstance(FIX.advise(measured(recorded(torch.float32), SLOW)), NoUse)
