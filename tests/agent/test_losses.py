"""The losses that a process of a trial notes, and that it changes nothing by that."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from findwall.agent.trial_arm.losses import Losses  # noqa: E402 - it is of no use without torch


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Losses:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back as it was
    return Losses(torch)


def test_roots_from_a_generator_are_all_gone_back_from(losses: Losses) -> None:
    x = torch.ones(2, requires_grad=True)
    torch.autograd.backward(part for part in (3 * x[0], 5 * x[1]))
    assert x.grad is not None and x.grad.tolist() == [3.0, 5.0] and losses.read() == [3.0]


def test_a_look_that_fails_does_not_break_the_job(losses: Losses, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_tensors: object) -> None:
        raise ValueError("a look failed")

    monkeypatch.setattr(losses, "_note", fail)
    x = torch.ones(1, requires_grad=True)
    (2 * x).backward()
    assert x.grad is not None and x.grad.tolist() == [2.0]
