"""What a recording leaves out is unknown, whoever recorded it: torch.profiler or Nsight Systems."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.causes.verdict import decide
from findwall.facts.facts import Facts
from findwall.facts.step_views import split_by_phase
from findwall.fixes import CannotTell, all_fixes
from findwall.model.events import NSYS, TORCH, Kind
from sketch import facts_of, sketch

STEPS = "|         |         |         "


def without_ops(recorder: str) -> Facts:
    """CUDA calls and kernels: ProfilerActivity.CUDA alone, or `nsys profile --trace=cuda`."""
    whole = sketch(cpu="o         o         o", gpu="m         m         m", steps=STEPS)
    kept = whole.events.is_kind(Kind.RUNTIME, Kind.KERNEL, Kind.ANNOTATION)
    header = replace(whole.header, recorder=recorder)
    return facts_of(replace(whole, events=whole.events.take(kept), header=header))


@pytest.mark.parametrize("recorder", [TORCH, NSYS])
def test_a_silent_host_may_be_in_the_loader_where_no_op_is_recorded(recorder: str) -> None:
    facts = without_ops(recorder)
    verdict = decide(facts)
    assert (verdict.cause, verdict.between) == (None, ("host-work", "loader-starved"))
    for name in ("loader-workers", "lighter-samples", "persistent-workers", "device-side-preprocessing"):
        assert isinstance(all_fixes()[name].advise(facts), CannotTell), name
    assert split_by_phase(facts)["forward"] == 0.0


@pytest.mark.parametrize("recorder", [TORCH, NSYS])
def test_device_work_without_shapes_has_no_verdict(recorder: str) -> None:
    facts = facts_of(sketch(cpu="ooo      " * 3, gpu="mwwwkkkkk" * 3, steps="|        " * 3))
    assert decide(facts).cause == "unfused-pointwise"
    header = replace(facts.timeline.header, recorder=recorder, shapes=False)
    nameless = replace(facts.timeline.events, inputs=np.full_like(facts.timeline.events.inputs, -1))
    blind = decide(replace(facts, timeline=replace(facts.timeline, events=nameless, header=header)))
    assert (blind.cause, blind.between) == (None, ("unfused-pointwise",))
