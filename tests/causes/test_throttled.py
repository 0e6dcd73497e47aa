"""Clocks held down by heat or hardware."""

from __future__ import annotations

import pytest

from findwall.causes.compute import throttled
from findwall.facts.facts import Facts
from findwall.model.machine import NO_TELEMETRY, Sampled, Telemetry
from sketch import facts_of, sketch
from speaking import in_words

CLOCK = Sampled(mean=1200.0, min=1000.0, max=1800.0)
HOT = Telemetry(sm_clock_mhz=CLOCK, throttle={"hw-thermal": 0.8, "sw-power-cap": 1.0})
CAPPED = Telemetry(sm_clock_mhz=CLOCK, throttle={"sw-power-cap": 1.0})


def drawn(telemetry: Telemetry) -> Facts:
    return facts_of(sketch(cpu="o  o  o", gpu="m  m  m", steps="|  |  |  "), telemetry=telemetry)


def fires() -> Facts:
    return drawn(HOT)


def clear() -> Facts:
    """A power cap is how a busy card normally runs."""
    return drawn(CAPPED)


def cannot_tell() -> Facts:
    return drawn(NO_TELEMETRY)


def test_a_third_of_the_clock_is_a_third_of_the_time() -> None:
    assert fires().spent_ms("throttled") == pytest.approx(1 / 3)
    text = in_words(throttled.CAUSE, fires())
    assert "1,200 MHz instead of 1,800" in text
    assert "hw-thermal" in text
