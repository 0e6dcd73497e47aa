"""Facts of jobs recorded on an H200, and the same with another cause, for what no recorded job has."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from msgspec.structs import replace

from captures import FIXTURES
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from findwall.model.causes import cause_index
from recordings import facts

TRUTH: dict[str, Any] = json.loads((FIXTURES / "jobs" / "truth.json").read_text())
JOBS = sorted(path.name.removesuffix(".json.gz") for path in (FIXTURES / "jobs").glob("*.json.gz"))


def job(name: str) -> Facts:
    """A recorded job with its true step time where that was measured."""
    path = FIXTURES / "jobs" / f"{name}.json.gz"
    path = path if path.exists() else FIXTURES / f"{name}.json.gz"
    return facts(path, TRUTH.get(name, {}).get("step_ms"))


def with_cause(facts: Facts, cause: str) -> Facts:
    """The same device work, all of it given to one cause that could give all of it back."""
    count = len(facts.atoms.index)
    atoms = replace(facts.atoms, cause=np.full(count, cause_index(cause), np.int64), floor=np.zeros(count))
    return replace(facts, atoms=atoms)


def as_collectives(facts: Facts) -> Facts:
    """The same device work, all of it communication that nothing hides."""
    talk = replace(facts.kernels, communication=np.ones(len(facts.kernels.row), bool))
    return replace(with_cause(facts, "exposed-collective"), kernels=talk)


def on_another_gpu(facts: Facts, name: str) -> Facts:
    return replace(facts, ceilings=table_ceilings(name))
