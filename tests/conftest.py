"""Shared fixtures. What lies beside the project (`../shared`) is optional: tests that need it skip."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # tests draw their timelines with `sketch`

import jobs as running
from book import Book
from captures import SHARED

# No example is measured against a clock: others may use the machine too.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """A folder that all workers share, for documents that more than one test looks at (`recordings.py`)."""
    if "FINDWALL_TESTS_KEPT" not in os.environ:
        kept = tempfile.TemporaryDirectory(prefix="findwall-tests-")
        os.environ["FINDWALL_TESTS_KEPT"] = kept.name
        config.add_cleanup(kept.cleanup)
        config.add_cleanup(lambda: os.environ.pop("FINDWALL_TESTS_KEPT", None))
    # No job hangs on the processor's vectors: the compiler need not try in each which of them there are.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
    # The tests share few cores, and OMP threads that wait for each other take seconds.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "zoo").is_dir():
        pytest.skip("../shared is not beside the project")
    return SHARED


@pytest.fixture(scope="session")
def zoo_truth(shared: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((shared / "zoo" / "truth.json").read_text())
    return truth


@pytest.fixture(scope="module")
def hidden() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def alone(hidden: None) -> None:
    """A step that is observed here holds what this test makes; nothing that an earlier one left in circles is
    freed in its midst."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each run of a probe four times the cache is written over: a gigabyte on some machines."""
    monkeypatch.setattr("findwall.probe.measuring.last_level_cache", lambda: 1 << 20)


@pytest.fixture
def book() -> Book:
    return Book()


# -- real jobs through `python -m findwall run`, with a stand-in for the verdict's command ------------------


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
