"""Ops of a step as they were measured on one machine, as they are and as fixes would run them.

A probe is known by its op, the inputs that the trace recorded of it, and its variant: "as-is", or what a fix
makes of it ("bf16", "nhwc", "bf16+nhwc", "padded", "sdpa", "fused", "pinned"). A rewrite is probed in both
its forms, "plain" and "cheaper", on tensors drawn like the job's.
"""

from __future__ import annotations

import math

import msgspec

from findwall.errors import InputError
from findwall.model.events import Inputs
from findwall.model.intervals import I64

PROBES_FILE = "probes.json"
PROBES_SCHEMA = "findwall-probes/1"
AS_IS = "as-is"
# Ops that the trace holds in pieces, or under many names: probed under one of ours.
ATTENTION = "findwall::attention"
OPTIMIZER = "findwall::optimizer"
UPLOAD = "findwall::upload"
REWRITE = "rewrite::"  # how the op of a rewrite begins: the fix follows
PLAIN, CHEAPER = "plain", "cheaper"
# No op takes longer, and no step has so many distinct ones: more is no measurement. Chosen by hand.
LONGEST_NS = 1e11
MOST_PROBES = 20_000


class Probe(msgspec.Struct, frozen=True):
    """One op to run in one way."""

    op: str  # as recorded, or one of ours
    inputs: Inputs  # as recorded: what it is known by
    variant: str
    run: Inputs | None = None  # where it is run on others: padded ones

    @property
    def key(self) -> str:
        return probe_key(self.op, self.inputs, self.variant)


def probe_key(op: str, inputs: Inputs, variant: str) -> str:
    """What a probe is kept under: text that says all of it."""
    parts = [op, variant, inputs.dims, inputs.types, inputs.strides, inputs.concrete]
    return msgspec.json.encode(parts).decode()


class Draw(msgspec.Struct, frozen=True):
    """A tensor to draw, as one of the job's is known to be; types as the profiler writes them."""

    dims: tuple[int, ...]
    dtype: str
    below: int = 0  # integers: from 0 to this, and all as often, as nobody knows which a job has
    has_gradient: bool = False  # the backward pass gives it one
    entries: int = 0  # a sparse matrix in CSR form, with so many numbers that are not zero


Drawn = Draw | list[Draw] | int | float | bool | str | None  # an argument: drawn, or as it is


class Rewrite(msgspec.Struct, frozen=True):
    """Something a step does in a way that has a cheaper one: what both forms are given after torch, and the
    device rows that it is today."""

    fix: str
    given: tuple[Drawn, ...]
    rows: I64  # of all steps that were traced
    calls: int  # that these rows are
    backward: bool = False  # the rows hold its backward pass too

    def probe(self, form: str) -> Probe:
        variant = f"{form}+backward" if self.backward else form
        concrete = [msgspec.json.encode(one).decode() for one in self.given]
        return Probe(REWRITE + self.fix, Inputs([], [], [], concrete), variant)


class Probes(msgspec.Struct, frozen=True):
    """What was probed on one machine, by key."""

    gpu: str
    driver: str
    torch: str
    date: str  # UTC, ISO 8601
    ns: dict[str, float] = {}
    skipped: dict[str, str] = {}  # by key: why an op could not be run
    seconds: float = 0.0  # that the last probing took
    schema: str = PROBES_SCHEMA

    def of(self, op: str, inputs: Inputs, variant: str) -> float | None:
        return self.ns.get(probe_key(op, inputs, variant))


def read_probes(content: bytes) -> Probes:
    """Probes from a file that may hold anything; InputError says why it cannot be trusted."""
    try:
        found = msgspec.json.decode(content, type=Probes)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"it holds no probes ({error})") from error
    if found.schema != PROBES_SCHEMA:
        raise InputError(f"it was written as {found.schema[:40]}, this findwall reads {PROBES_SCHEMA}")
    if len(found.ns) > MOST_PROBES:
        raise InputError(f"it holds {len(found.ns)} probes, more than any step has ops")
    if not all(math.isfinite(ns) and 0 < ns < LONGEST_NS for ns in found.ns.values()):
        raise InputError("it holds times that no op takes")
    return found
