"""Whether the device is a GPU or the cores, and what it and its work are called."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.hardware import vendor

TOPOLOGY_TOOLS = {"nvidia": "nvidia-smi topo -m", "amd": "rocm-smi --showtopo"}


def on_cores(facts: Facts) -> bool:
    """A CPU job: the device is the cores, and its kernels are the ops themselves."""
    return facts.rank.device_kind == "cpu"


def device_word(facts: Facts) -> str:
    return "CPU" if on_cores(facts) else "GPU"


def pieces(facts: Facts) -> str:
    return "ops" if on_cores(facts) else "kernels"


def maker(facts: Facts) -> str | None:
    """Who made the device; None where that is not known, or where it is the cores."""
    return None if on_cores(facts) else vendor(facts.ceilings.device or facts.run.device_name or "") or None


def topology_tool(facts: Facts) -> str | None:
    """The command that shows how this maker's devices are linked; None where the maker is not known."""
    return TOPOLOGY_TOOLS.get(maker(facts) or "")
