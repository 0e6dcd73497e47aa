"""Steps that torch really runs on the CPU, traced and then observed as `findwall run` does."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from findwall.agent.stages import observing
from findwall.agent.tracing.line_marks import LineMarks
from findwall.agent.tracing.number_marks import watch_numbers
from findwall.agent.tracing.observer import OBSERVER
from findwall.agent.tracing.value_counts import tell, watch_values
from findwall.agent.tracing.zero_counts import tell_zeros
from findwall.apply.registry import undo_all
from findwall.dataflow.linking import Flow, link_flow
from findwall.facts.facts import Facts
from findwall.model.dataflow import CUT, KEPT, LOOK, SAME
from findwall.readers.observed_steps import read_observed_steps
from sketch import facts_of
from traced_steps import traced_steps

Step = Callable[[], Any]


def observe(step: Step, path: Path, iterations: int = 2) -> None:
    """As the stage does, in a job that keeps what its steps return."""
    state = observing._state(torch)
    sums = observing._sums(torch, {id(one) for one in state})
    OBSERVER.begin(torch, path)
    lines = LineMarks(torch)
    returned: list[Any] = []
    puts = [*watch_values(torch), *watch_numbers(torch)]
    try:
        observing._tell_state(torch, state)
        tell_zeros(torch)
        lines.begin()
        for number in range(iterations):
            returned.append(step())
            if number < iterations - 1:
                tell(torch, CUT, [])
        lines.end()
        with torch.profiler.record_function(LOOK):
            same = observing._same(torch, sums)
        tell(torch, SAME, same)
        tell(torch, KEPT, observing._kept(torch))
    finally:
        lines.end()
        undo_all(puts)
        OBSERVER.end()


def flow_of(step: Step, folder: Path, iterations: int = 2) -> Flow:
    step()
    observe(step, folder / "observed.json", iterations)
    return link_flow(read_observed_steps(folder / "observed.json"))


def facts_with_flow(step: Step, folder: Path, iterations: int = 2) -> Facts:
    """Traced and observed."""
    step()
    timeline = traced_steps(lambda _: step(), folder)
    observe(step, folder / "observed.json", iterations)
    seen = read_observed_steps(folder / "observed.json")
    return facts_of(timeline, device_kind="cpu", observed=seen)


@cache
def benchmark(name: str) -> ModuleType:
    """A script of `benchmarks/`, by its file: its folder on the path would hide folders of tests."""
    path = Path(__file__).resolve().parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def planted(name: str, edited: bool = False) -> Facts:
    """A job of `benchmarks/unneeded_jobs.py`."""
    jobs = benchmark("unneeded_jobs")
    with tempfile.TemporaryDirectory() as folder:
        return facts_with_flow(jobs.JOBS[name](jobs.Setting("cpu", 96, edited)), Path(folder))
