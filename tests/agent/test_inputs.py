"""Samples and tokens per step of jobs that use no data loader."""

from __future__ import annotations

import pytest

from findwall.agent.step_ends.first_inputs import Inputs

LOOP = """
    import time
    import torch

    torch.manual_seed(0)
    {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = torch.nn.CrossEntropyLoss()
    until = time.monotonic() + 60
    for step in range(100_000):
        optimizer.zero_grad()
        for _ in range({micro}):
            inputs = {inputs}
            loss = loss_of(model(inputs).flatten(0, -2), {labels})
            loss.backward()
        optimizer.step()
        if time.monotonic() > until:
            break
"""
VECTORS = {
    "model": "model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 8))",
    "inputs": "torch.randn(48, 256)",
    "labels": "torch.randint(8, (48,))",
}
TEXT = {
    "model": "model = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100))",
    "inputs": "torch.randint(100, (4, 64))",
    "labels": "torch.randint(100, (256,))",
}


@pytest.mark.parametrize(
    ("job", "micro", "expected"),
    [
        (VECTORS, 1, (48.0, "samples")),
        (VECTORS, 3, (144.0, "samples")),
        (TEXT, 1, (256.0, "tokens")),
        (TEXT, 2, (512.0, "tokens")),
    ],
)
def test_a_step_counts_what_its_model_is_called_with(warm_jobs, job, micro, expected):
    run = warm_jobs.run(LOOP.format(micro=micro, **job), options=("--wait", "2", "--steps", "6", "--stop"))
    measured = run.measurement()
    assert measured.trace.steps >= 1
    assert (measured.samples_per_step, measured.sample_unit) == expected


def test_without_a_trace_micro_steps_are_unknown_and_nothing_is_claimed(warm_jobs):
    options = ("--wait", "2", "--steps", "6", "--stop", "--no-trace")
    measured = warm_jobs.run(LOOP.format(micro=2, **VECTORS), options=options).measurement()
    assert measured.samples_per_step is None


@pytest.mark.parametrize(
    ("seen", "size"),
    [
        ({}, None),
        ({(8.0, "samples"): 3}, (8.0, "samples")),
        ({(8.0, "samples"): 30, (4.0, "samples"): 1}, (8.0, "samples")),
        ({(8.0, "samples"): 3, (4.0, "samples"): 2}, None),  # no one size
        ({(8.0, "samples"): 9, (400.0, "tokens"): 2}, (400.0, "tokens")),
    ],
)
def test_one_size_or_none(seen, size):
    torch = pytest.importorskip("torch")
    inputs = Inputs(torch)
    inputs._seen.update(seen)
    assert inputs.size() == size
