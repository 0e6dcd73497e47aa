"""Whether the device is a GPU or the cores, and what it and its work are called."""

from __future__ import annotations

from findwall.attribute.facts import Facts


def on_cores(facts: Facts) -> bool:
    """A CPU job: the device is the cores, and its kernels are the ops themselves."""
    return facts.rank.device_kind == "cpu"


def device_word(facts: Facts) -> str:
    return "CPU" if on_cores(facts) else "GPU"


def pieces(facts: Facts) -> str:
    return "ops" if on_cores(facts) else "kernels"
