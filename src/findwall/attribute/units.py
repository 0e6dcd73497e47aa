"""One distinct op of a step, and the device rows of all its calls."""

from __future__ import annotations

import msgspec

from findwall.model.events import Bool, Inputs
from findwall.model.intervals import I64

Made = frozenset[str]  # fixes that are made together


class Unit(msgspec.Struct, frozen=True):
    kind: str  # product, conv, norm, attention (written out), attention kernel, optimizer, upload
    op: str  # what it is probed as
    inputs: Inputs
    rows: I64  # device rows of all calls
    carries: Bool  # of these rows: which take the op's time once it is another; the others take none
    calls: int
    ns: float  # a step
    math: str = ""  # the format of its products
    wide: bool = False  # all its numbers are fp32
    nchw: bool = False  # it reads images that are not channels-last
    odd: tuple[int, ...] = ()  # extents that keep it off the fast kernels
    tuned: bool = False  # cuDNN tries out its convolutions
    absolute: bool = False  # it cannot be run as it is: the probe's own time counts
