"""The project's own recordings, each of a job that was chosen for one thing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from timeline_checks import check_consistent

from captures import FIXTURES
from findwall.model.events import Kind, Timeline
from findwall.readers import read_trace

RECORDED = sorted(FIXTURES.glob("*.json.gz"))


def recorded(name: str) -> Timeline:
    return read_trace(FIXTURES / f"{name}.json.gz", workers=1)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_read_whole(path: Path) -> None:
    timeline = read_trace(path, workers=1)
    check_consistent(timeline)
    quality = timeline.quality
    assert (quality.damaged, quality.repaired, quality.cut_off, quality.notes) == (0, 0, False, [])
    assert timeline.header.devices[0].name == "NVIDIA H200"
    assert len(timeline.rows(Kind.KERNEL)) > 50


def test_many_kernels_of_one_graph_launch() -> None:
    timeline = recorded("cuda_graph_replay")
    _, counts = np.unique(timeline.events.correlation[timeline.rows(Kind.KERNEL)], return_counts=True)
    assert counts.tolist() == [30, 30, 30]


def test_python_frames() -> None:
    timeline = recorded("python_stacks")
    assert timeline.header.stacks
    assert len(timeline.rows(Kind.PYTHON)) > 500


def test_memory_samples() -> None:
    memory = recorded("memory_events").memory
    assert memory is not None
    assert (memory.allocated > 0).all()
    assert (memory.reserved >= memory.allocated).all()
    assert (np.diff(memory.time) >= 0).all()


def test_triton_rows_on_the_host() -> None:
    timeline = recorded("compiled_training")
    ops = timeline.rows(Kind.OP)
    assert sum(timeline.name_of(row).startswith("triton_") for row in ops) > 50
    assert (timeline.events.stream[ops] == -1).all()
