"""Real jobs through `python -m findwall run`, in subprocesses, with a stand-in for the verdict's command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import jobs as running


@pytest.fixture
def jobs(tmp_path: Path) -> running.Jobs:
    return running.Jobs(tmp_path)


@pytest.fixture
def warm_jobs(tmp_path: Path) -> running.Jobs:
    """For what does not hang on a fresh interpreter: such a job starts in a third of the time."""
    return running.Jobs(tmp_path, warm=True)


@pytest.fixture
def training() -> Callable[[str], str]:
    return running.training
