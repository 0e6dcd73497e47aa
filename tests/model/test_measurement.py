"""What one step took, where several share an event."""

from __future__ import annotations

import pytest

from findwall.model.measurement import StepColumns


def columns(host: list[int], device: list[int | None]) -> StepColumns:
    return StepColumns(host_ns=host, device_ns=device)


def test_steps_that_share_a_time_are_told_apart_by_a_host_that_keeps_pace():
    """One step in ten saves something for nine times as long: its block's mean would hide that."""
    host = [100] * 4 + [900] + [100] * 15
    device: list[int | None] = [260] * 5 + [101] * 5 + [102] * 5 + [103] * 5
    times = columns(host, device).times()
    assert times[:5] == [100, 100, 100, 100, 900]
    assert times[5:] == [101] * 5 + [102] * 5 + [103] * 5


def test_a_host_that_ends_steps_in_bursts_tells_nothing():
    host = [1, 1, 1, 397] * 5
    device: list[int | None] = [100] * 20
    assert columns(host, device).times() == [100] * 20


def test_single_steps_keep_the_devices_time():
    host = [98, 120, 103, 99]
    assert columns(host, [100, 101, 102, 103]).times() == [100, 101, 102, 103]


@pytest.mark.parametrize("device", [[None] * 4, [None, None, None, 7]])
def test_where_the_device_knows_few_the_host_speaks(device):
    assert columns([1, 2, 3, 4], device).times() == [1, 2, 3, 4]


def test_no_steps_have_no_times():
    """A job that ends before a step was timed."""
    assert columns([], []).times() == []
