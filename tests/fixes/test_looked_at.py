"""Statistics of every step: told where nothing that is trained needs them, in steps that really run."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from dataflow_observed import facts_with_flow
from findwall.facts.facts import Facts
from findwall.fixes import Use
from findwall.fixes.less_work.evaluate_less_often import FIX
from findwall.fixes.predict import predict
from speaking import in_words

pytestmark = pytest.mark.usefixtures("alone")


def trained(folder: Path, way: str) -> Facts:
    """A step, and what it does with its gradients or its results besides."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 32), torch.randint(0, 8, (64,))
    log: list[object] = []
    window = deque([torch.rand(64, 8) for _ in range(8)], maxlen=8)

    def step() -> None:
        optimizer.zero_grad()
        given = model(x)
        loss = functional.cross_entropy(given, y)
        loss.backward()
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        for one in gradients if way == "logged" else ():
            log.extend(one.norm(p).item() for p in range(1, 40))
        if way == "accuracy":
            log.append(
                [(given.detach().topk(k).indices == y[:, None]).any(1).float().mean() for k in range(1, 9)]
            )
        if way == "clipped":
            for one in gradients:
                one.mul_(torch.clamp(1.0 / (one.norm() + 1e-6), max=1.0))
        optimizer.step()
        if way == "window":  # behind the update, where an iteration ends, and over many steps
            window.append(given.detach().softmax(-1))
            kept = torch.cat(list(window))
            log.append(kept[kept[:, 0].argsort()].cumsum(0).mean().item())

    return facts_with_flow(step, folder)


@pytest.mark.parametrize("way", ["logged", "accuracy", "window"])
def test_statistics_of_every_step_are_for_every_so_many(way: str, tmp_path: Path) -> None:
    facts = trained(tmp_path, way)
    found = FIX.advise(facts)
    assert isinstance(found, Use) and found.claim.id == "evaluate-less-often/looked-at"
    assert found.condition == "is-only-looked-at" and "every n steps what is only looked at" in in_words(
        found
    )
    told = predict(facts, {"evaluate-less-often": found})
    assert told is not None and told.mid < 0.95 * facts.step


@pytest.mark.parametrize("way", ["clipped", "nothing"])
def test_what_training_needs_is_no_statistic(way: str, tmp_path: Path) -> None:
    found = FIX.advise(trained(tmp_path, way))
    assert not isinstance(found, Use), in_words(found)
