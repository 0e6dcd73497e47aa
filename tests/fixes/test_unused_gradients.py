"""Gradients that nobody takes away: found where they are, and nowhere else. The steps are really trained."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from findwall.dataflow.added_gradients import unused_gradients
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
from trained_steps import Trained, recorded

FIX = all_fixes()["no-unused-gradients"]


def teacher_first(job: Trained) -> torch.Tensor:
    """A teacher in the graph, called before the student."""
    wanted = job.other(job.batch)
    return job.model(job.batch) + 0.1 * wanted


def student_first(job: Trained) -> torch.Tensor:
    out = job.model(job.batch)
    return out + 0.1 * job.other(job.batch)


def through_the_frozen(job: Trained) -> torch.Tensor:
    """What is trained lies in front: its gradient has to pass."""
    out: torch.Tensor = job.other(job.model(job.batch))
    return out


def without_graph(job: Trained) -> torch.Tensor:
    with torch.no_grad():
        wanted = job.other(job.batch)
    return job.model(job.batch) + 0.1 * wanted


def backbone(job: Trained) -> torch.Tensor:
    """Frozen layers in front of those that are trained."""
    out: torch.Tensor = job.model(job.other(job.batch))
    return out


@cache
def with_a_teacher() -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        return recorded(Path(folder), forward=teacher_first)


@pytest.mark.parametrize("forward", [teacher_first, backbone])
def test_what_nobody_takes_away_is_found(forward: object, tmp_path: Path) -> None:
    facts = recorded(tmp_path, forward=forward)  # type: ignore[arg-type]
    found = unused_gradients(facts)
    assert found is not None and found.parameters == 4  # two layers with their biases
    names = {facts.op_name(int(atom)) for atom in found.atoms}
    assert "aten::mm" in names and "aten::add_" in names
    assert isinstance(FIX.advise(facts), Use)


@pytest.mark.parametrize("forward", [student_first, through_the_frozen, without_graph, Trained.forward])
def test_nothing_is_said_where_it_may_be_needed(forward: object, tmp_path: Path) -> None:
    facts = recorded(tmp_path, forward=forward)  # type: ignore[arg-type]
    assert unused_gradients(facts) is None
    assert isinstance(FIX.advise(facts), NoUse)


def test_a_second_pass_adds_to_what_the_first_gave(tmp_path: Path) -> None:
    def twice(job: Trained) -> torch.Tensor:
        nn.functional.mse_loss(teacher_first(job), job.batch).backward()
        return teacher_first(job)

    assert unused_gradients(recorded(tmp_path, forward=twice)) is None


def test_gradients_that_are_set_to_zero_tell_nothing(tmp_path: Path) -> None:
    """All are added to then."""
    job = Trained()
    zero = job.optimizer.zero_grad
    job.optimizer.zero_grad = lambda: zero(set_to_none=False)
    assert unused_gradients(recorded(tmp_path, forward=teacher_first, trained=job)) is None


def test_without_them_the_losses_are_the_same() -> None:
    losses = []
    for forward in (teacher_first, without_graph):
        job, seen = Trained(norms=False), []
        for _ in range(4):
            job.optimizer.zero_grad()
            loss = nn.functional.mse_loss(forward(job), job.batch)
            loss.backward()
            job.optimizer.step()
            seen.append(loss.item())
        losses.append(seen)
    assert losses[0] == losses[1]
