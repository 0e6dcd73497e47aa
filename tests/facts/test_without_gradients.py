"""Forward work without gradients: of steps that torch really ran and traced on the CPU, and of drawn ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from findwall.facts import gradient_free_work as module
from findwall.facts.facts import Facts
from findwall.facts.gradient_free_work import Gradientless, without_gradients
from findwall.model.catalogue import FAIR_PART
from findwall.model.measured_run import HostLine
from fixes import drawn
from trained_steps import WIDE, Trained, recorded


@pytest.fixture(autouse=True)
def all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long other processes let a step take: the least of such work counts."""
    monkeypatch.setattr(module, "FAIR_PART", 0.0)


RECORDINGS = 8


def evaluation(job: Trained, number: int) -> None:
    job.model.eval()
    with torch.no_grad():
        nn.functional.mse_loss(job.model(job.many), job.many)
    job.model.train()


def facts_with(path: Path, *args: Any, **options: Any) -> tuple[Facts, Gradientless]:
    """Of a recording of three steps other processes may disturb one, which then counts as warm-up: of some
    such recordings, not all in the same moment, one is as the job is."""
    for attempt in range(RECORDINGS):
        facts = recorded(path, *args, **options)
        found = without_gradients(facts)
        if found is not None:
            return facts, found
        time.sleep(0.2 * attempt)
    raise AssertionError(f"not found in {RECORDINGS} recordings")


def found_in(path: Path, *args: Any, **options: Any) -> Gradientless:
    return facts_with(path, *args, **options)[1]


# -- what torch writes ------------------------------------------------------------------------------


def test_an_evaluation_in_every_step_is_found(tmp_path: Path) -> None:
    found = found_in(tmp_path, after=evaluation)
    assert found.ms > 0 and not found.evaluates  # no trace tells: a teacher may have the same layers


def test_a_frame_tells_the_line(tmp_path: Path) -> None:
    found = found_in(tmp_path, after=evaluation, with_stack=True)
    assert found.place.startswith("test_without_gradients.py:") and found.place.endswith(" in evaluation")


def update_of_averages(job: Trained, number: int) -> None:
    with torch.no_grad():
        for _ in range(5):
            for mine, other in zip(job.average.parameters(), job.model.parameters(), strict=True):
                mine.lerp_(other, 0.01)


def test_averages_of_the_weights_beside_an_evaluation_are_none_of_it(tmp_path: Path) -> None:
    def both(job: Trained, number: int) -> None:
        update_of_averages(job, number)
        evaluation(job, number)
        update_of_averages(job, number)

    facts, found = facts_with(tmp_path, after=both)
    assert "aten::lerp_" not in {facts.op_name(atom) for atom in found.atoms.tolist()}


def frozen_with_gradients_on(job: Trained, number: int) -> None:
    """Nothing to record, but nobody said so: the trace tells no difference from what is trained."""
    job.other.requires_grad_(False)(job.many)


def detached(job: Trained, number: int) -> None:
    for _ in range(50):
        job.model[0].weight.detach().mul(2.0).add_(1.0).sum().item()


def recording(job: Trained, number: int) -> None:
    job.forward()


def products(job: Trained, number: int) -> None:
    """As statistics of the activations are worked out."""
    with torch.no_grad():
        torch.mm(job.many.t(), job.many)


def compiled(job: Trained) -> torch.Tensor:
    out: torch.Tensor = torch.compile(job.model, backend="aot_eager")(job.batch)
    return out


PLAIN: dict[str, dict[str, Any]] = {
    "plain": {},
    "averages of the weights": {"after": update_of_averages},
    "a frozen network, recorded": {"before": frozen_with_gradients_on},
    "detached tensors": {"before": detached},
    "checkpoints": {"forward": lambda job: checkpoint(job.model, job.batch, use_reentrant=False)},
    "checkpoints by a function": {
        "forward": lambda job: checkpoint(job.model, job.batch.requires_grad_(), use_reentrant=True)
    },
    "inference": {"after": evaluation, "trains": False},
    "inference that records": {
        "before": lambda job, number: job.forward(),
        "after": evaluation,
        "trains": False,
    },
    "products of no layer": {"after": products},
    "compiled": {"forward": compiled},
    "every third step": {"after": lambda job, number: evaluation(job, 0) if number == 1 else None},
}


@pytest.mark.parametrize("case", PLAIN)
def test_what_training_is_made_of_is_none_of_it(case: str, tmp_path: Path) -> None:
    assert without_gradients(recorded(tmp_path, **PLAIN[case])) is None


class Preconditioned(torch.optim.SGD):
    """Multiplies gradients by matrices of its own, as second-order methods do, far longer than it trains."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            nn.functional.linear(torch.randn(8192, WIDE), torch.eye(WIDE))
        return super().step(closure)


def test_products_of_an_optimizer_are_its_own(tmp_path: Path) -> None:
    job = Trained()
    job.optimizer = Preconditioned(job.model.parameters(), lr=0.1)
    assert without_gradients(recorded(tmp_path, trained=job)) is None


def test_products_before_an_update_prepare_it(tmp_path: Path) -> None:
    job = Trained()
    update = job.optimizer.step

    def step() -> None:
        with torch.no_grad():
            nn.functional.linear(job.many, torch.eye(WIDE))
        update()

    job.optimizer.step = step
    assert without_gradients(recorded(tmp_path, trained=job)) is None


# -- what is made of it -----------------------------------------------------------------------------


def test_on_a_device_it_is_its_kernels_and_their_waits() -> None:
    found = without_gradients(drawn.evaluating())
    assert found is not None
    assert found.ms == pytest.approx(8.0, abs=0.3) and found.share == pytest.approx(0.8, abs=0.03)


def test_a_small_share_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAIR_PART", FAIR_PART)
    assert without_gradients(drawn.evaluating(passes=1, trained=9)) is None


def test_a_line_that_the_rest_of_the_step_cannot_fill_is_its_line() -> None:
    often, seldom = (
        drawn.evaluating(host_lines=(HostLine("train.py:41", "evaluate", share),)) for share in (0.5, 0.1)
    )
    assert getattr(without_gradients(often), "place", None) == "train.py:41 in evaluate"
    assert getattr(without_gradients(seldom), "place", None) == ""


def test_the_trained_model_in_evaluation_mode_tells_it() -> None:
    assert [
        getattr(without_gradients(drawn.evaluating(evaluates=seen)), "evaluates", None)
        for seen in (True, False)
    ] == [True, False]
