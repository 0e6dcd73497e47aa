"""torch's execution traces (ExecutionTraceObserver): ops with their inputs in the order in which they began.

They hold no times and nothing of the device. `findwall run` keeps one of every graph capture that it sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from findwall.errors import InputError
from findwall.model.events import COLUMN_TYPES, Details, Events, Header, Inputs, Kind, ReadQuality, Timeline
from findwall.readers.raw_file import RawFile

_HEAD_BYTES = 256  # its first words are "schema", where a profiler's trace says "schemaVersion"
_SCHEMA = re.compile(rb'"schema"\s*:')
_TENSOR = re.compile(r"Tensor\(((?:[^()]|\([^()]*\))*)\)")  # "nullptr (uninitialized)" too: none is there
ROOT = "[pytorch|profiler"  # the nodes of the process and of its threads
_MOST_BYTES = 128 << 20  # a thousand bytes an op; chosen by hand
_MOST_NODES = 1 << 31  # numbers of ops; chosen by hand
_USER_SCOPE = 7  # RecordScope::USER_SCOPE: ranges that a person or a library put around its work
_DEVICE_FIELD = 5  # of a tensor's value: id, storage, offset, elements, bytes each, device
_COMPILED = "triton_"  # findwall's own ranges around a compiled kernel's launch


class Arguments(msgspec.Struct):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []


class _Attribute(msgspec.Struct):
    name: str = ""
    value: Any = None


class Node(msgspec.Struct):
    id: int
    name: str = ""
    ctrl_deps: int = 0
    inputs: Arguments = msgspec.field(default_factory=Arguments)
    outputs: Arguments = msgspec.field(default_factory=Arguments)
    attrs: list[_Attribute] = []

    def attribute(self, name: str) -> int:
        found = next((one.value for one in self.attrs if one.name == name), None)
        return found if isinstance(found, int) else 0


class _Execution(msgspec.Struct):
    nodes: list[Node] = []


def is_execution_trace(path: Path) -> bool:
    try:
        return _SCHEMA.search(_text(path, _HEAD_BYTES)[:_HEAD_BYTES]) is not None
    except InputError:
        return False


def _text(path: Path, enough: int) -> bytes:
    """What a file holds, plain or packed, up to the piece in which it has enough."""
    file = RawFile(path)
    try:
        parts: list[bytes] = []
        while sum(map(len, parts)) < enough and (part := file.read()):
            parts.append(part)
    finally:
        file.close()
    return b"".join(parts)


def read_execution_trace(path: Path) -> Timeline:
    """Its ops as rows; times only order and nest them."""
    with whole(path):
        return _timeline(path, nodes_in(path))


def nodes_in(path: Path) -> list[Node]:
    """In the order in which they began."""
    with whole(path):
        text = _text(path, _MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise InputError(f"{path} is longer than {_MOST_BYTES >> 20} MiB.", "Record a shorter one.")
        execution = msgspec.json.decode(text, type=_Execution, strict=False)
        nodes = sorted(execution.nodes, key=lambda node: node.id)
        if nodes and not 0 <= nodes[0].id <= nodes[-1].id < _MOST_NODES:
            raise InputError(
                f"{path} is not a whole execution trace: it numbers its ops oddly.", "Record it again."
            )
        return nodes


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Values are of any type and depth: what cannot be read, or written down again, ends here."""
    try:
        yield
    except (OSError, msgspec.MsgspecError, RecursionError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a whole execution trace: {error}.", "Record it again.") from error


def _timeline(path: Path, nodes: list[Node]) -> Timeline:
    last = last_inside(nodes)
    rows = [node for node in nodes if not node.name.startswith(ROOT) and not _on_host(node)]
    names: dict[str, int] = {}
    inputs: dict[bytes, int] = {}
    threads: dict[int, int] = {}
    columns: dict[str, list[int]] = {
        "start": [2 * node.id for node in rows],
        "end": [2 * last[node.id] + 1 for node in rows],
        "kind": [_kind(node) for node in rows],
        "name": [names.setdefault(node.name, len(names)) for node in rows],
        "process": [0] * len(rows),
        "thread": [threads.setdefault(node.attribute("tid"), len(threads)) for node in rows],
        "inputs": [inputs.setdefault(_inputs_of(node), len(inputs)) for node in rows],
    }
    blank = [-1] * len(rows)
    filled = {
        name: np.array(columns.get(name, blank), np.int64).astype(dtype)
        for name, dtype in COLUMN_TYPES.items()
    }
    return Timeline(
        path=str(path),
        events=Events(**filled),
        names=list(names),
        processes=["0"],
        threads=[(0, str(tid)) for tid in threads],
        details=Details(inputs=list(inputs)),
        header=Header(shapes=True),
        quality=ReadQuality(events=len(nodes), kept=len(rows)),
    )


def _kind(node: Node) -> Kind:
    is_range = node.attribute("scope") == _USER_SCOPE and not node.name.startswith(_COMPILED)
    return Kind.ANNOTATION if is_range else Kind.OP


def last_inside(nodes: list[Node]) -> dict[int, int]:
    """The last node that began inside each node, itself at least. A node's number is above its parent's."""
    last = {node.id: node.id for node in nodes}
    for node in reversed(nodes):
        if node.ctrl_deps in last and node.ctrl_deps < node.id:
            last[node.ctrl_deps] = max(last[node.ctrl_deps], last[node.id])
    return last


def _on_host(node: Node) -> bool:
    """Whether it has tensors and all of them lie in the host's memory: other threads go on meanwhile."""
    devices = {device for one in (node.inputs, node.outputs) for device in _devices(one.values)}
    return bool(devices) and all(device == "cpu" for device in devices)


def _devices(values: list[Any]) -> list[str]:
    found = []
    for value in values:
        if not isinstance(value, list):
            continue
        if len(value) == _DEVICE_FIELD + 1 and isinstance(value[_DEVICE_FIELD], str):
            found.append(value[_DEVICE_FIELD])
        else:
            found += _devices(value)
    return [device for device in found if device]


def _inputs_of(node: Node) -> bytes:
    values = node.inputs.values
    if node.name.startswith(_COMPILED) and values and isinstance(values[0], str):
        return msgspec.json.encode(_compiled(values[0]))
    return _inputs(node.inputs)


# As torch's Python names types, and as its profiler does.
_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}


def _compiled(written: str) -> Inputs:
    """What findwall wrote of a compiled kernel's tensors: "bfloat16:32x4096:4096x1;float32:32:1"."""
    tensors = [one.split(":") for one in written.split(";") if one.count(":") == 2]
    return Inputs(
        dims=[_numbers(tensor[1]) for tensor in tensors],
        types=[_TYPES.get(tensor[0], tensor[0]) for tensor in tensors],
        strides=[_numbers(tensor[2]) for tensor in tensors],
        concrete=[""] * len(tensors),
    )


def _numbers(written: str) -> list[int | list[int]]:
    return [int(number) for number in written.split("x") if number.isdigit()]


def _inputs(arguments: Arguments) -> bytes:
    """As a profiler would have recorded them."""
    dims: list[Any] = []
    types: list[Any] = []
    strides: list[Any] = []
    concrete: list[str] = []
    for at, written in enumerate(arguments.types):
        tensors = tensor_types(written)
        shape, stride = _at(arguments.shapes, at), _at(arguments.strides, at)
        value = arguments.values[at] if at < len(arguments.values) else None
        if written.startswith("Tensor("):
            types.append(tensors[0] if tensors else "")
            dims.append(shape if tensors else [])
            strides.append(stride if tensors else [])
            concrete.append("")
        elif tensors:
            types.append(tensors)
            dims.append(shape)
            strides.append(stride)
            concrete.append("")
        else:
            types.append(_scalar(written))
            dims.append([])
            strides.append([])
            concrete.append("" if types[-1] == "" else str(value))
    return msgspec.json.encode(Inputs(dims, types, strides, concrete))


def tensor_types(written: str) -> list[str]:
    """Of each tensor of an argument the type of its values; empty where a list leaves one out, as
    `x[:, rows]` does."""
    return ["" if one.startswith("nullptr") else one for one in _TENSOR.findall(written)]


def _at(values: list[Any], at: int) -> Any:
    return values[at] if at < len(values) and isinstance(values[at], list) else []


def _scalar(written: str) -> str:
    if written in ("Int", "Double", "Bool"):
        return "Scalar"
    return "ScalarList" if written.startswith("GenericList") else ""
