"""Step times from device events that are never waited for."""

from __future__ import annotations

from findwall.agent.step_ends.step_gate import Gauge
from findwall.agent.timing.steptimer import DeviceClock, StepTimer


class Device:
    """A stand-in for torch.cuda: events are passed when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.passed_ms = 0.0
        self.capturing = False
        self.made = 0
        self.broken = False
        device = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                device.made += 1
                self.at = 0.0

            def record(self, stream: object) -> None:
                assert not device.capturing
                self.at = device.now_ms

            def query(self) -> bool:
                assert not device.capturing
                return self.at <= device.passed_ms

            def elapsed_time(self, other: Event) -> float:
                if device.broken:
                    raise RuntimeError("different devices")
                return other.at - self.at

        self.Event = Event
        self.cuda = self

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_stream(self, device: int) -> str:
        return f"stream of {device}"


def timer_on(device: Device) -> StepTimer:
    timer = StepTimer(DeviceClock(device, 0), Gauge())
    timer.start()
    return timer


def test_steps_are_resolved_when_the_device_has_passed_them():
    device = Device()
    timer = timer_on(device)
    for step in range(6):
        device.now_ms += 10 + step
        device.passed_ms = device.now_ms - 25
        timer.end_step(step)
    assert timer.columns.device_ns[:3] == [10_000_000, 11_000_000, 12_000_000]
    assert timer.columns.device_ns[-1] is None
    device.passed_ms = device.now_ms
    timer.resolve()
    assert None not in timer.columns.device_ns
    assert timer.recent(2) == [14_000_000, 15_000_000]


def test_events_are_used_again():
    device = Device()
    timer = timer_on(device)
    for step in range(100):
        device.now_ms += 1
        device.passed_ms = device.now_ms
        timer.end_step(step)
    assert device.made < 6


def test_a_capture_is_never_disturbed():
    """Step ends inside a capture never get here; what the timer does by itself looks first."""
    device = Device()
    clock = DeviceClock(device, 0)
    timer = StepTimer(clock, Gauge())
    device.capturing = True
    timer.start()
    timer.resolve()
    assert clock.record() is None and not clock.done(object())
    device.capturing = False
    device.passed_ms = 100
    for _ in range(2):
        device.now_ms += 1
        timer.end_step(1)
    assert timer.columns.device_ns == [None, 1_000_000]  # the first had no beginning
    assert timer.columns.times() == [1_000_000]


def test_times_between_devices_are_unknown_not_wrong():
    device = Device()
    timer = timer_on(device)
    device.broken = True
    device.now_ms = device.passed_ms = 5
    timer.end_step(1)
    assert timer.columns.device_ns == [None]


def test_the_gauge_is_read_and_reset_with_the_step():
    gauge = Gauge()
    timer = StepTimer(None, gauge)
    timer.start()
    gauge.loader_ns, gauge.batches, gauge.evaluated = 5, 2, True
    timer.end_step(10)
    timer.end_step(30)
    assert timer.columns.loader_ns == [5, 0]
    assert timer.columns.batches == [2, 0]
    assert timer.columns.evaluated == [True, False]
    assert timer.columns.times()[1] == 20


def test_short_steps_share_an_event():
    """Two pass, the third is measured: each gets their mean, and those after the last event stay unknown."""
    device = Device()
    gauge = Gauge()
    timer = StepTimer(DeviceClock(device, 0), gauge, at_once=False)
    timer.start()
    timer._last_host = 0
    for end in (30, 60):
        device.now_ms += 6
        gauge.loader_ns, gauge.batches, gauge.hook_ns = 7, 3, 2
        timer.end_step(end, passed=[end - 20, end - 5])
    timer.end_unmeasured([70])
    device.passed_ms = 100
    columns = timer.columns
    assert columns.device_ns == [None] * 7
    timer.resolve()
    assert columns.device_ns == [2_000_000] * 6 + [None]
    assert columns.times() == [2_000_000] * 6
    assert columns.host_ns == [10, 15, 5, 10, 15, 5, 10]
    assert columns.loader_ns[:3] == [2, 2, 3] and columns.batches[:3] == [1, 1, 1]
    assert columns.hook_ns[:3] == [0, 0, 2]
    assert {len(getattr(columns, name)) for name in columns.__struct_fields__ if name != "kind"} == {7}
