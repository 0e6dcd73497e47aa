"""Steps that are observed, each as if it were the only one of its process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _alone(alone: None) -> None: ...
