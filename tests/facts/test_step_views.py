"""Whatever the device waits for, its time is in exactly one phase."""

from __future__ import annotations

import pytest

from findwall.facts.step_views import split_by_phase
from findwall.model.events import Kind
from sketch import facts_of, sketch


def phases(cpu: str, gpu: str) -> dict[str, float]:
    width = max(len(line) for line in [*cpu.split("\n"), gpu])
    lines = [line.ljust(width) * 3 for line in cpu.split("\n")]
    timeline = sketch(cpu="\n".join(lines), gpu=gpu.ljust(width) * 3, steps="|".ljust(width) * 3)
    found = split_by_phase(facts_of(timeline, step_ms=width))
    assert sum(found.values()) == pytest.approx(width * 1e6)
    return {phase: round(spent / 1e6, 1) for phase, spent in found.items() if spent > 5e4}


def test_the_loader_and_a_batchs_copy() -> None:
    assert phases("ddddco    ", "    hhmmmm") == {"loader": 4.0, "copy": 2.0, "forward": 4.0}


def test_collectives_on_the_device_and_beside_it() -> None:
    assert phases("oo        ", "mmmmnnnnnn") == {"forward": 4.0, "comms": 6.0}
    assert phases("o qqqqqqo  \n  s    c", "mm b   h MM") == {
        "forward": 4.0,
        "comms": 6.0,
        "other": 1.0,
    }


def test_a_closure_inside_the_optimizers_call_is_forward_and_backward() -> None:
    inside, behind = (phases(f"{call}\n  A\no o o ", " m M m") for call in ("zzzzz ", "    z "))
    assert inside == behind
    assert inside.keys() >= {"forward", "backward", "optimizer"}


def test_what_the_host_does_of_its_own_is_no_phase_of_the_model() -> None:
    """Six milliseconds of silence before the first kernel: Python outside of any module."""
    found = phases("o       no", "       mMM")
    assert found["other"] > 3.0 and found["forward"] < 7.0


def test_an_engine_that_is_not_recorded_is_known_by_its_nodes() -> None:
    """As in traces of torch 1.8: the autograd thread has nodes and no ranges around them."""
    nodes = {"A": (Kind.OP, "CudnnConvolutionBackward")}
    timeline = sketch(cpu=" A  " * 3 + "\n" + "oo  " * 3, gpu="mM  " * 3, steps="|   " * 3, host=nodes)
    found = split_by_phase(facts_of(timeline, step_ms=4))
    assert found["backward"] == pytest.approx(1e6, rel=0.2)
    assert facts_of(timeline, step_ms=4).spent_ms("recompute") == 0
