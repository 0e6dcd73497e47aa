"""What the machine can do: ceilings, by spec and as achieved, in FLOP/s and bytes/s."""

from __future__ import annotations

import msgspec

# Math formats, as the ceilings name them. "fp32" is the vector pipe; "tf32" the tensor cores on fp32 data.
MATH_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


class Ceilings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ceilings of one device. A missing key or None is unknown, never zero."""

    device: str = ""
    source: str = "unknown"  # "measured", "table" or "unknown"
    origin: str = ""  # the document or the measurement the figures come from
    flops: dict[str, float] = {}  # achievable FLOP/s by math type: what floors use
    spec_flops: dict[str, float] = {}  # dense, vendor's figure: what MFU and refusals use
    bandwidth: float | None = None  # achievable bytes/s, read plus write
    spec_bandwidth: float | None = None
    l2_bytes: int | None = None
    sm_count: int | None = None
    h2d_pinned: float | None = None  # bytes/s
    h2d_pageable: float | None = None
    launch_s: float | None = None  # host seconds to issue one small kernel eagerly
    graph_launch_s: float | None = None  # device seconds a small kernel takes in a graph
    link_bandwidth: float | None = None  # all-reduce bus bandwidth, bytes/s

    @property
    def known(self) -> bool:
        return bool(self.flops) and self.bandwidth is not None


UNKNOWN_CEILINGS = Ceilings()
