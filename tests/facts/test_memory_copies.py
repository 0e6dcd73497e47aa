"""The link between host and device: as measured, else what its PCIe generation carries."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from findwall.facts.facts import Facts
from findwall.facts.memory_copies import at_link_rate, link_rate
from findwall.machine.hardware import table_ceilings
from findwall.model.machine import Telemetry
from findwall.replay.change import HostPaced, Scale
from fixes.recorded import job, on_another_gpu
from sketch import KERNELS, facts_of, sketch


def copying(nbytes: int = 90_000_000, **told: int) -> Facts:
    """A batch of pageable memory takes ten ms of every step."""
    copy = replace(KERNELS["h"], nbytes=nbytes)
    timeline = sketch("cccccccccco " * 3, "hhhhhhhhhhkk" * 3, "|           " * 3, kernels={"h": copy})
    return facts_of(timeline, telemetry=Telemetry(**told))


def test_what_was_measured_counts_before_any_table() -> None:
    facts = copying()
    measured = replace(facts.ceilings, h2d_pinned=12.5e9)
    assert link_rate(replace(facts, ceilings=measured)) == 12.5e9


def test_a_newer_link_carries_twice_what_the_one_before_it_does() -> None:
    rates = [link_rate(copying(pcie_generation=generation)) or 0.0 for generation in (3, 4, 5)]
    assert rates[0] < 16e9 < rates[1] < 32e9 < rates[2] < 64e9
    half = link_rate(copying(pcie_generation=4, pcie_width=8))
    assert half == pytest.approx(rates[1] / 2)


def test_a_link_at_rest_says_nothing_of_what_it_carries() -> None:
    assert link_rate(copying(pcie_generation=1)) == link_rate(copying())


def test_where_copies_do_not_pass_over_pcie_no_rate_is_known() -> None:
    assert link_rate(on_another_gpu(copying(), "NVIDIA GH200 480GB")) is None
    older, newer = (on_another_gpu(copying(), name) for name in ("Tesla V100-SXM2-16GB", "NVIDIA H200"))
    assert (link_rate(older) or 0.0) < (link_rate(newer) or 0.0)


def test_pinned_copies_take_what_their_bytes_take_and_hold_nobody_up() -> None:
    facts = copying()
    rate = link_rate(facts) or 0.0
    edits = at_link_rate(facts).edits
    scale = next(edit for edit in edits if isinstance(edit, Scale))
    assert scale.factor == pytest.approx(90e6 / rate / 10e-3)
    paced = next(edit for edit in edits if isinstance(edit, HostPaced))
    assert not paced.paced and set(paced.rows.tolist()) == set(scale.rows.tolist())


def test_no_copy_gets_longer_by_pinning() -> None:
    edits = at_link_rate(copying(nbytes=10**12)).edits
    assert all((edit.factor <= 1.0).all() for edit in edits if isinstance(edit, Scale))


def test_a_recorded_job_takes_what_it_was_measured_to() -> None:
    """154 MB a step that were pinned: 5.18 ms, of which the rest of the step takes 2.8."""
    facts = job("pageable_batches")
    assert table_ceilings("NVIDIA H200").h2d_pinned is None
    assert 50e9 < (link_rate(facts) or 0.0) < 64e9
