"""Averages of the weights: those that torch really ran on the CPU, and what runs beside a model at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from findwall.facts.beside_the_model import averages, beside_the_model
from findwall.facts.facts import Facts
from findwall.fixes.optimizer.averages_in_lists import writes_of
from trained_steps import Trained, recorded


def names(facts: Facts, atoms: list[int]) -> set[str]:
    return {facts.op_name(atom) for atom in atoms}


def by_hand(job: Trained, number: int) -> None:
    with torch.no_grad():
        for mine, other in zip(job.average.parameters(), job.model.parameters(), strict=True):
            mine.lerp_(other, 0.01)


def test_an_average_is_found_behind_the_optimizer(tmp_path: Path) -> None:
    facts = recorded(tmp_path, after=by_hand)
    found = averages(facts)
    assert names(facts, found.tolist()) == {"aten::lerp_"}
    assert len(found) == facts.steps.count * len(list(Trained().model.parameters()))


def test_an_average_ahead_of_the_first_pass_is_one_too(tmp_path: Path) -> None:
    """The optimizer's step that it follows was before the recording."""
    facts = recorded(tmp_path, before=by_hand)
    found, each = averages(facts), len(list(Trained().model.parameters()))
    assert len(found) == facts.steps.count * each
    assert writes_of(facts, found).tolist() == found.tolist()


def test_torchs_own_average_is_one(tmp_path: Path) -> None:
    job = Trained(norms=False)
    average = AveragedModel(job.model, avg_fn=get_ema_avg_fn(0.9))
    average.update_parameters(job.model)  # the first time it copies

    facts = recorded(tmp_path, after=lambda job, _number: average.update_parameters(job.model), trained=job)
    copies = [atom for atom in averages(facts).tolist() if facts.op_name(atom) == "aten::copy_"]
    # A busy machine may spoil a step, which then counts as warm-up: at its end a copy too many may be seen.
    assert len(copies) // facts.steps.count == len(list(job.model.parameters()))


@pytest.mark.parametrize("change", ["zero_", "clamp_", "mul_"])
def test_gradients_that_are_zeroed_and_weights_that_are_clipped_are_none(tmp_path: Path, change: str) -> None:
    amount = {"zero_": (), "clamp_": (-1.0, 1.0), "mul_": (0.99,)}[change]

    def changed(job: Trained, number: int) -> None:
        with torch.no_grad():
            for one in job.model.parameters():
                getattr(one.grad if change == "zero_" else one, change)(*amount)

    assert averages(recorded(tmp_path, after=changed)).tolist() == []


def test_clipping_and_the_update_are_none(tmp_path: Path) -> None:
    """Clipping tensor after tensor changes gradients in place, which have the shapes of the weights."""
    job = Trained()
    job.optimizer = torch.optim.SGD(job.model.parameters(), lr=0.1, foreach=False)
    step = job.optimizer.step

    def clipping_step() -> None:
        with torch.no_grad():
            for one in job.model.parameters():
                assert one.grad is not None
                one.grad.mul_(0.5)
        step()

    job.optimizer.step = clipping_step
    facts = recorded(tmp_path, trained=job)
    assert averages(facts).tolist() == []


def test_what_records_gradients_is_the_model_and_the_rest_is_beside_it(tmp_path: Path) -> None:
    def masked(job: Trained) -> torch.Tensor:
        return job.forward() * torch.ones(64)  # made from nothing: no number, and part of the model

    facts = recorded(tmp_path, after=by_hand, forward=masked, trained=Trained(norms=False))
    beside = beside_the_model(facts)
    inside = names(facts, [at for at, one in enumerate(beside) if not one])
    outside = names(facts, [at for at, one in enumerate(beside) if one])
    assert "aten::lerp_" in outside and "aten::lerp_" not in inside
    assert "aten::addmm" in inside and "aten::addmm" not in outside
    assert "aten::ones" not in outside and "aten::mul" in inside


def test_what_a_loss_needs_without_gradients_is_beside_the_model(tmp_path: Path) -> None:
    """Returns that a loop makes of values: compiling the model leaves them as they are."""

    def weighted(job: Trained) -> torch.Tensor:
        found = job.forward()
        with torch.no_grad():
            returns = found
            for _ in range(3):
                returns = torch.sigmoid(returns)
        return torch.tanh(found * returns)

    facts = recorded(tmp_path, forward=weighted, trained=Trained(norms=False))
    beside = beside_the_model(facts)
    outside = names(facts, [at for at, one in enumerate(beside) if one])
    inside = names(facts, [at for at, one in enumerate(beside) if not one])
    assert "aten::sigmoid" in outside and "aten::sigmoid" not in inside
    assert "aten::tanh" in inside and "aten::tanh" not in outside


def test_a_job_that_does_not_train_has_nothing_beside_its_model(tmp_path: Path) -> None:
    def inference(job: Trained, number: int) -> None:
        with torch.no_grad():
            nn.functional.relu(job.model(job.batch))

    facts = recorded(tmp_path, after=inference, trains=False)
    assert not beside_the_model(facts).any() and len(averages(facts)) == 0


def test_a_second_optimizer_right_behind_the_first_is_none(tmp_path: Path) -> None:
    job = Trained()
    both = [torch.optim.SGD(job.model.parameters(), lr=0.1, foreach=False) for _ in range(2)]

    class InTurn:
        def zero_grad(self) -> None:
            both[0].zero_grad()

        def step(self) -> None:
            for one in both:
                one.step()

    job.optimizer = InTurn()
    assert averages(recorded(tmp_path, trained=job)).tolist() == []
