"""Jobs whose steps come in kinds, through `findwall run`."""

from __future__ import annotations

from itertools import pairwise

SLEEPS = """
    import time, sys, torch
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(extra=0.0):
        time.sleep(0.005 + extra)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_step_in_six_is_told_apart_and_traced(warm_jobs):
    source = SLEEPS + "    torch.set_num_threads(3)\n"
    source += "    for i in range(400): step(0.06 if i % 6 == 0 else 0.0)\n"
    run = warm_jobs.run(source, options=("--wait", "4", "--steps", "40", "--stop"))
    assert run.code == 0, run.stderr
    found = run.measurement()
    slow = [row for row, kind in enumerate(found.steps.kind) if kind == "slow"]
    assert len(slow) in (6, 7)
    assert {after - before for before, after in pairwise(slow)} == {6}
    assert "slow" in found.trace.kinds[:-1]  # the last traced step is not counted
    assert found.trace.kinds.count("usual") >= 2
    cpu = found.telemetry.cpu  # None where the system does not tell who used it
    assert cpu is None or cpu.threads == 3


def test_what_a_job_does_beside_its_steps_is_timed(warm_jobs):
    source = (
        SLEEPS
        + """
    data = torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=4)
    for epoch in range(12):
        for batch in data:
            step()
        torch.save(model.state_dict(), "model.pt")
    model.eval()
    time.sleep(0.1)
    step()
    """
    )
    found = warm_jobs.run(source, options=("--wait", "2", "--steps", "20")).measurement()
    saved = [one.step for one in found.beside if one.what == "saving"]
    assert len(saved) == 12
    assert saved[1] - saved[0] == 8
    assert {one.what for one in found.beside} >= {"saving", "loader-start"}
    assert found.elapsed is not None
    assert found.elapsed.total > found.elapsed.start_up > 0
    assert sum(found.elapsed.beside.values()) < found.elapsed.total


def test_what_comes_after_all_was_measured_amends_the_verdict(warm_jobs):
    source = SLEEPS + "    for i in range(500): step(1.5 if i % 120 == 119 else 0.0)\n"
    run = warm_jobs.run(source, options=("--wait", "2", "--steps", "6"))
    assert run.code == 0, run.stderr
    first, between, second = run.stderr.partition("the next verdict replaces the one above")
    assert between and first.count("THE VERDICT") == second.count("THE VERDICT") == 1
    found = run.measurement()
    assert found.later is not None
    assert found.later.steps > 100
    assert [ns > 1_400_000_000 for ns in found.later.slow_ns].count(True) >= 1
