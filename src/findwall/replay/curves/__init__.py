"""What kernels and hosts reach in practice: curves measured once on a GPU, and read wherever a fix asks.

A kernel of some class reaches a share of its floor's speed that depends on how long that floor is: a short
one is mostly start-up. `benchmarks/curves.py` measures them. What the host pays is kept in units of the cost
of an eager op on the machine it was measured on, so that it can be taken to another. A GPU without curves of
its own is given those of the one that has them: shares of its own ceilings, not times.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec
import numpy as np

from findwall.model.intervals import F64
from findwall.units import NS_PER_US

MEASURED = "h200.json"


class Curve(msgspec.Struct, frozen=True):
    """The share of its floor's speed that a class reaches, by the length of the floor."""

    floor_us: tuple[float, ...]
    reached: tuple[float, ...]

    def at(self, floor_ns: F64) -> F64:
        """Between two measured lengths in between, beyond them as at the end."""
        floor = np.log(np.maximum(floor_ns, 1.0) / NS_PER_US)
        found: F64 = np.interp(floor, np.log(self.floor_us), self.reached)
        return found


class Curves(msgspec.Struct, frozen=True):
    """All that was measured of one GPU and its host."""

    gpu: str
    torch: str
    date: str
    classes: dict[str, Curve]  # "matmul/bf16", "conv/bf16/nhwc/forward/1x1", "conv/bf16", "fused/chain", …
    host: dict[str, float]  # in units of an eager op

    def likely_ns(self, name: str, floor_ns: F64) -> F64:
        """How long kernels of such floors take, by the nearest curve there is: its own, or a wider one.
        KeyError where there is none."""
        while name not in self.classes and "/" in name:
            name = name.rpartition("/")[0]
        found: F64 = floor_ns / self.classes[name].at(floor_ns)
        return found


@cache
def curves() -> Curves:
    raw = resources.files(__name__).joinpath(MEASURED).read_bytes()
    return msgspec.json.decode(raw, type=Curves)
