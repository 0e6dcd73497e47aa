"""The shapes of a trace's entries, as torch.profiler has written them since 1.8.

Only what the columns need is named; msgspec skips the rest without building it. Times and nested
arguments stay raw text: times become integers without passing through a float, arguments are
decoded once per distinct value.
"""

from __future__ import annotations

from typing import Any, TypeAlias, Union

import msgspec
from msgspec import Raw, Struct

ABSENT = Raw(b"")


class Args(
    Struct,
    gc=False,
    rename={
        "external": "External id",
        "external_old": "external id",
        "sequence": "Sequence number",
        "nbytes": "bytes",
        "graph_node": "graph node id",
        "dims": "Input Dims",
        "dims_old": "Input dims",
        "types": "Input type",
        "strides": "Input Strides",
        "concrete": "Concrete Inputs",
        "shared_memory": "shared memory",
        "registers": "registers per thread",
        "collective": "Collective name",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "group_size": "Group size",
        "group_name": "Process Group Name",
        "call_stack": "Call stack",
        "module": "Module Hierarchy",
    },
):
    """The arguments of a complete event, of whatever kind."""

    correlation: int = -1
    external: int = -1
    external_old: int = -1  # torch 1.8 on device and runtime rows
    sequence: int = -1
    device: int = -1
    stream: int = -1
    nbytes: int = -1
    graph_node: int = -1
    dims: Raw = ABSENT
    dims_old: Raw = ABSENT
    types: Raw = ABSENT
    strides: Raw = ABSENT
    concrete: Raw = ABSENT
    grid: Raw = ABSENT
    block: Raw = ABSENT
    shared_memory: Raw = ABSENT
    registers: Raw = ABSENT
    collective: Raw = ABSENT
    in_elements: Raw = ABSENT
    out_elements: Raw = ABSENT
    group_size: Raw = ABSENT
    group_name: Raw = ABSENT
    dtype: Raw = ABSENT
    call_stack: Raw = ABSENT
    module: Raw = ABSENT
    kernel: Raw = ABSENT


class MemoryArgs(
    Struct,
    gc=False,
    rename={
        "device_type": "Device Type",
        "device": "Device Id",
        "address": "Addr",
        "size": "Bytes",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
    },
):
    """The arguments of a `[memory]` instant. Device type 0 is the host."""

    device_type: int = 0
    device: int = -1
    address: int = 0
    size: int = 0  # negative where it is freed
    allocated: int = -1
    reserved: int = -1


class LabelArgs(Struct, gc=False):
    """The arguments of a process or thread name."""

    name: str = ""


class Complete(Struct, gc=False, tag_field="ph", tag="X"):
    """Something that lasted."""

    cat: str = ""
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = ABSENT
    dur: Raw = ABSENT
    args: Args | None = None


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    """A point in time; the allocator's totals come as these."""

    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = ABSENT
    args: MemoryArgs | None = None


class Label(Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or a thread."""

    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    args: LabelArgs | None = None


class Begin(Complete, gc=False, tag_field="ph", tag="B"):
    """The first half of something that lasted."""


class End(Complete, gc=False, tag_field="ph", tag="E"):
    """Its other half."""


class Unknown(Struct, gc=False):
    """A phase that no version of the format names."""


# Flow arrows, counters, async and object events: seen, counted, not needed.
SKIPPED_PHASES = "sftCbneSTpFPNODRcvVI(),"
SKIPPED: tuple[type[Struct], ...] = tuple(
    msgspec.defstruct(f"Skipped{ord(phase)}", [], tag_field="ph", tag=phase, gc=False)
    for phase in SKIPPED_PHASES
)
PHASE_OF: dict[type[Any], str] = dict(zip(SKIPPED, SKIPPED_PHASES, strict=True))
PHASE_OF[Unknown] = "unknown"
Entry: TypeAlias = Struct

_KINDS: Any = (Complete, Instant, Label, Begin, End, *SKIPPED)
ANY_ENTRY: Any = Union[_KINDS]  # noqa: UP007 - the classes are made at run time
# Not strict: some HIP rows write numbers as text ("bytes": "512").
MANY_DECODER: Any = msgspec.json.Decoder(list[ANY_ENTRY], strict=False)
ONE_DECODER: Any = msgspec.json.Decoder(ANY_ENTRY, strict=False)
SPLIT_DECODER = msgspec.json.Decoder(list[Raw])
FIELDS_DECODER = msgspec.json.Decoder(dict[str, Raw])
