"""Hand-written documents: one with everything, one without a verdict, one that knows nothing, and worse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from findwall.model.diagnosis import Diagnosis, from_json

DOCUMENTS = Path(__file__).parents[1] / "fixtures" / "documents"


@pytest.fixture
def document() -> Callable[[str], Diagnosis]:
    return lambda name: from_json((DOCUMENTS / f"{name}.json").read_bytes())
