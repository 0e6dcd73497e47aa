"""A stage that waits for its neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from findwall.causes.comms import pipeline_bubble
from findwall.facts.facts import Facts
from sketch import Drawn, facts_of, sketch
from speaking import in_words

STEPS = "|        |        |        "
CPU = "oo       oo       oo"
GPU = "nnnnmm   nnnnmm   nnnnmm"
KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def drawn(within: str | None) -> Facts:
    kernel = Drawn(KERNEL, "record_param_comms", within=within)
    return facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"n": kernel}))


def fires() -> Facts:
    return drawn("nccl:recv 0<-1")


def clear() -> Facts:
    """An all-to-all runs the same kernel."""
    return drawn("nccl:all_to_all")


def cannot_tell() -> Facts:
    return drawn(None)


def test_counts_the_messages() -> None:
    assert "1 sends and receives" in in_words(pipeline_bubble.CAUSE, fires())


def test_metadata_tells_as_well() -> None:
    kernel = Drawn(KERNEL, "record_param_comms", extra={"collective": "recv"})
    facts = facts_of(sketch(cpu=CPU, gpu=GPU, steps=STEPS, kernels={"n": kernel}))
    assert facts.spent_ms("pipeline-bubble") > 0


def test_a_queued_kernel_waits_for_the_other_device() -> None:
    gpu = """
    mmmmm   mmmmm   mmmmm
kkkk    kkkk    kkkk
"""
    timeline = sketch(cpu="oo    oo    oo", gpu=gpu, steps="|     |     |     ")
    events = timeline.events
    device = np.where(events.stream == 8, 1, events.device)
    facts = facts_of(replace(timeline, events=replace(events, device=device)))
    assert facts.steps.device == 0
    assert facts.spent_ms("pipeline-bubble") == pytest.approx(3.0, abs=0.1)
    assert facts.spent_ms("unknown") == 0
    assert "waits for another device of the process" in in_words(pipeline_bubble.CAUSE, facts)
    assert pipeline_bubble.CAUSE.evidence(facts)[0].ms == pytest.approx(3.0, abs=0.1)
