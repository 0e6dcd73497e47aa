"""What findwall tells torch's observer, and what it leaves alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent.stages import observing
from findwall.agent.step_ends.stepfinder import StepEnd
from findwall.agent.tracing.line_marks import LineMarks, is_own
from findwall.agent.tracing.number_marks import watch_numbers
from findwall.agent.tracing.observer import OBSERVER, Observer
from findwall.apply.registry import undo_all

torch = pytest.importorskip("torch")


def test_a_batch_that_knows_itself_is_looked_at_once() -> None:
    batch = SimpleNamespace(x=torch.ones(2), more={"y": [torch.zeros(3)]})
    batch.itself = batch
    batch.store = SimpleNamespace(parent=batch, z=torch.ones(1))
    found = observing._tensors_in(torch, batch)
    assert sorted(one.numel() for one in found) == [1, 2, 3]


def test_nothing_is_observed_beside_sparse_rows() -> None:
    held = torch.eye(3).to_sparse_csr()
    with pytest.raises(RuntimeError, match="CSR form"):
        observing._stop_at_rows(torch)
    assert held.layout is torch.sparse_csr


def test_what_python_holds_is_kept_but_for_gradients_of_nobody() -> None:
    frozen, trained = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    trained(frozen(torch.ones(1, 2))).sum().backward()
    held = [torch.arange(7)]
    kept = {one.data_ptr() for one in observing._kept(torch)}
    assert held[0].data_ptr() in kept
    assert trained.weight.grad.data_ptr() in kept
    assert frozen.weight.grad.data_ptr() not in kept
    del optimizer


def test_memory_that_numpy_changes_is_not_the_same() -> None:
    buffer, other = torch.zeros(8), torch.ones(8)
    sums = [(one, was) for one, was in observing._sums(torch, set()) if one() is buffer or one() is other]
    buffer.numpy()[3] = 5.0
    same = observing._same(torch, sums)
    assert len(same) == 1 and same[0] is other


def test_what_is_looked_at_is_held_by_the_job_alone() -> None:
    weight = torch.nn.Parameter(torch.ones(1153))
    weight.sum().backward()
    sums = observing._sums(torch, set())
    weight.grad = None
    assert not [one for one in observing._same(torch, sums) if one.numel() == 1153 and one is not weight]
    assert not [one for one in observing._kept(torch) if one.numel() == 1153 and one is not weight]


def marked(work: Callable[[], object]) -> list[str]:
    """The lines that are marked while this runs."""
    seen: list[str] = []

    class Range:
        def __init__(self, name: str) -> None:
            seen.append(name)

        def __enter__(self) -> None: ...
        def __exit__(self, *how: Any) -> None: ...

    fake = SimpleNamespace(autograd=SimpleNamespace(profiler=SimpleNamespace(record_function=Range)))
    if sys.gettrace() is not None:
        pytest.skip("somebody traces these tests")
    marks = LineMarks(fake)
    marks.begin()
    work()
    marks.end()
    assert sys.gettrace() is None and sys._getframe().f_trace is None
    return seen


def test_lines_of_libraries_are_passed_by_and_nothing_is_left() -> None:
    assert is_own(__file__) and not is_own(str(torch.__file__)) and not is_own("<string>")
    seen = marked(lambda: torch.ones(2).add(1))
    assert seen and all("test_observing.py:" in name for name in seen)


def test_a_line_goes_on_once_torch_has_called_the_jobs_own_layer() -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    layer, x = Layer(), torch.ones(2)
    first = sys._getframe().f_lineno

    def work() -> object:
        return layer(x).sum()

    seen = [int(name.rpartition(":")[2]) for name in marked(work)]
    forward, line = Layer.forward.__code__.co_firstlineno + 1, first + 3
    at = seen.index(forward)
    assert seen[at - 1] == line and seen[at + 1] == line


def test_there_is_one_observer() -> None:
    observer = Observer()
    observer._torch = object()
    with pytest.raises(RuntimeError, match="in use"):
        observer.begin(torch, None)  # type: ignore[arg-type]
    assert not OBSERVER.is_busy


@pytest.mark.parametrize(
    ("source", "ops", "wanted"),
    [
        (StepEnd.OPTIMIZER, 20_000, 2),
        (StepEnd.OPTIMIZER, 40_000, 1),
        (StepEnd.OPTIMIZER, 60_000, 0),
        (StepEnd.FORWARD, 10_000, 4),
        (StepEnd.FORWARD, 20_000, 2),
        (StepEnd.FORWARD, 40_000, 0),
    ],
)
def test_as_many_iterations_are_observed_as_the_job_has_time_for(
    source: StepEnd, ops: int, wanted: int
) -> None:
    """One where two would hold it up for too long, unless an iteration may be only a part of a step."""
    trace = SimpleNamespace(steps=3, file="trace.json")
    engine: Any = SimpleNamespace(
        torch=torch,
        record=SimpleNamespace(trace=trace),
        rank=SimpleNamespace(speaks=True),
        window=SimpleNamespace(ops=3 * ops),
        finder=SimpleNamespace(source=source),
    )
    why = observing.barred(engine)
    assert ("hold the job up for about" in why) == (wanted == 0)
    if wanted:
        assert observing._wanted(engine) == wanted


def test_looking_at_memory_runs_no_ops() -> None:
    with torch.profiler.profile() as profiler:
        for one in (torch.ones(8), torch.ones(8, requires_grad=True), torch.ones(4, dtype=torch.bool)):
            assert observing._sum(torch, one) == observing._sum(torch, one.detach().clone())
    names = {event.name for event in profiler.events()}
    assert not names & {"aten::view", "aten::flatten", "aten::resolve_conj"}
    assert observing._sum(torch, torch.arange(6).view(2, 3).t()) != observing._sum(torch, torch.arange(6))


def test_functions_that_tell_their_numbers_are_put_back() -> None:
    puts = watch_numbers(torch)
    assert (torch.ones(2) * 3 + 1).tolist() == [4, 4] and (2 - torch.ones(2)).tolist() == [1, 1]
    assert torch.where(torch.tensor([True, False]), 1.0, 2.0).tolist() == [1, 2]
    undo_all(puts)
    assert not {"__mul__", "add_", "where"} & set(vars(torch.Tensor))
