"""What collectives carry, and what a run's own measurements say of its steps."""

from __future__ import annotations

import numpy as np
import pytest

from findwall.model.events import Kind
from findwall.model.machine import NO_TELEMETRY, Sampled, Telemetry
from findwall.model.measured_run import Rank, StepTimes
from findwall.step.call_names import collective_name, is_point_to_point
from findwall.step.links import link
from findwall.step.timed_steps import KindsTraced, collections_ns, rare_ns, throttled_share
from findwall.work.op_families.movement import message_bytes
from sketch import KERNELS, Drawn, sketch

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def only(drawn: Drawn) -> tuple[float, str, bool]:
    """Bytes, name and kind of a single collective."""
    timeline = sketch(cpu="o", gpu="n", kernels={"n": drawn})
    links, rows = link(timeline), timeline.rows(Kind.KERNEL)
    return (
        float(message_bytes(timeline, links, rows)[0]),
        collective_name(timeline, links, int(rows[0])),
        bool(is_point_to_point(timeline, links, rows)[0]),
    )


def test_sizes_come_from_metadata() -> None:
    extra = {"collective": "allreduce", "in_elements": 10, "out_elements": 20, "dtype": "BFloat16"}
    assert only(Drawn(KERNEL, "record_param_comms", extra=extra)) == (40.0, "allreduce", False)


def test_else_from_the_ops_tensors() -> None:
    size, name, _ = only(Drawn(KERNEL, "record_param_comms", within="nccl:all_to_all").given([6144]))
    assert (size, name) == (4.0 * 6144, "nccl:all_to_all")


def test_else_they_are_unknown() -> None:
    size, name, point_to_point = only(Drawn(KERNEL, "my::op"))
    assert np.isnan(size)
    assert name == "ncclDevKernel_SendRecv"
    assert not point_to_point


@pytest.mark.parametrize(
    ("within", "expected"),
    [("nccl:send 0->1", True), ("nccl:recv 0<-1", True), ("c10d::recv_", True), ("nccl:all_reduce", False)],
)
def test_sends_are_known_by_what_stands_around_them(within: str, expected: bool) -> None:
    assert only(Drawn(KERNEL, "record_param_comms", within=within))[2] is expected


def rank(*seconds: float, source: str = "measured", gc_s: float | None = None) -> Rank:
    return Rank(step_times=StepTimes(seconds, source, gc_s=gc_s))


def pauses(measured: Rank) -> float:
    return rare_ns(measured, KindsTraced(None, ())).get("unstable-steps", 0.0)


def test_a_steady_run_has_no_pauses() -> None:
    assert pauses(rank(*[0.1] * 20)) == 0
    assert pauses(rank(*np.linspace(0.095, 0.105, 20).tolist())) == 0


def test_rare_slow_steps_are_pauses() -> None:
    assert pauses(rank(*[0.1] * 18, 0.6, 0.6)) == pytest.approx(0.05e9)


def test_a_step_time_given_by_hand_says_nothing_of_pauses() -> None:
    assert pauses(rank(*[0.1] * 18, 0.6, 0.6, source="given")) == 0
    assert collections_ns(rank(0.1, source="given", gc_s=0.1)) == 0
    assert collections_ns(rank(0.1, gc_s=0.02)) == pytest.approx(0.02e9)


@pytest.mark.parametrize(
    "telemetry",
    [
        NO_TELEMETRY,
        Telemetry(throttle={"hw-thermal": 0.5}),
        Telemetry(sm_clock_mhz=Sampled(1200.0, 1000.0, 1800.0)),
    ],
)
def test_without_clocks_nothing_is_throttled(telemetry: Telemetry) -> None:
    assert throttled_share(telemetry) == 0


def test_letters_of_the_sketch_are_known() -> None:
    assert {"k", "m", "n", "h"} <= set(KERNELS)
