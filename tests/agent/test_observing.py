"""What findwall tells torch's observer, and what it leaves alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from findwall.agent import observing
from findwall.agent.tracing.line_marks import LineMarks, is_own
from findwall.agent.tracing.observer import OBSERVER, Observer

torch = pytest.importorskip("torch")


def test_a_batch_that_knows_itself_is_looked_at_once() -> None:
    batch = SimpleNamespace(x=torch.ones(2), more={"y": [torch.zeros(3)]})
    batch.itself = batch
    batch.store = SimpleNamespace(parent=batch, z=torch.ones(1))
    found = observing._tensors_in(torch, batch)
    assert sorted(one.numel() for one in found) == [1, 2, 3]


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
    sums = [(one, was) for one, was in observing._sums(torch, set()) if one is buffer or one is other]
    buffer.numpy()[3] = 5.0
    same = [one for one, was in sums if observing._sum(torch, one) == was]
    assert len(same) == 1 and same[0] is other


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
