"""How many examples a law is tried on: few in `make test`, many in `make soak`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

VARIABLE = "FINDWALL_FUZZ_EXAMPLES"


def drawn(count: int) -> settings:
    """So many examples, the same ones every time; as many others as the variable says where it is set."""
    return settings(
        max_examples=int(os.environ.get(VARIABLE, count)),
        deadline=None,
        derandomize=VARIABLE not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
