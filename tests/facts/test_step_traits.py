"""How the job is written."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from findwall.facts.step_traits import calls_around
from findwall.model.events import Kind
from sketch import KERNELS, facts_of, sketch


def test_backward_work_belongs_to_the_call_its_forward_op_lies_in() -> None:
    facts = facts_of(
        sketch(
            steps="|       " * 3,
            cpu="rrrr AAA" * 3 + "\n" + " o    o " * 3,
            gpu=" k    k " * 3,
            kernels={"k": replace(KERNELS["k"], sequence=7)},
            host={"r": (Kind.OP, "aten::gru")},
        )
    )
    around = calls_around(facts, np.arange(len(facts.atoms.index)), frozenset({"aten::gru"}))
    assert facts.links.backward.any() and len(around) > 0
    assert {facts.timeline.name_of(row) for row in around.tolist()} == {"aten::gru"}
