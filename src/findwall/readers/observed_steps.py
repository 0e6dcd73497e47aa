"""torch's execution traces as the ops of whole iterations and the tensors that each of them used."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from findwall.errors import InputError
from findwall.model.dataflow import CHANGE, LINE, MAKE, OVERWRITE, READ, Observed, Region
from findwall.model.measured_run import Run
from findwall.readers.execution_trace import (
    ROOT,
    Arguments,
    Node,
    is_execution_trace,
    last_inside,
    nodes_in,
    tensor_types,
    whole,
)

_BACKWARD_SCOPE = 1  # RecordScope::BACKWARD_FUNCTION: a node of autograd's
_ENGINE = "autograd::engine::"
WITHOUT_STORAGE = Region(0, 1, (), 1)
_TENSOR_FIELDS = 6  # id, storage, offset, elements, bytes each, device
# Changes that do not look at what was there.
_OVERWRITES = re.compile(
    r"^aten::(copy|fill|zero|normal|uniform|random|bernoulli|exponential|geometric|cauchy|log_normal|resize"
    r"|set)_$|^aten::_foreach_(copy|zero)_$"
)
# Whose schema does not say that they change their running statistics.
_STATISTICS = {"aten::native_batch_norm": (3, 4), "aten::cudnn_batch_norm": (3, 4)}


def read_observed_steps(path: Path) -> Observed:
    """Empty tensors are left out. One without a plain storage, as a sparse one, is taken for a storage."""
    with whole(path):
        nodes = [node for node in nodes_in(path) if not node.name.startswith(ROOT)]
        return _Columns(nodes).filled()


def observed_with(run: Run, path: Path) -> Run:
    """A run with what was observed of its job."""
    if not is_execution_trace(path):
        raise InputError(
            f"{path} is no execution trace.", "Record one with torch.profiler.ExecutionTraceObserver."
        )
    if len(run.ranks) != 1 or run.first.timeline is None:
        raise InputError(
            "--execution goes with the trace of one rank.", "Give that trace, recorded from the same job."
        )
    return replace(run, ranks=(replace(run.first, observed=read_observed_steps(path)),))


class _Columns:
    """Rows as they come, and each name, region and type once."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._names: dict[str, int] = {}
        self._given: dict[bytes, int] = {}
        self._regions: dict[Region, int] = {}
        self._types: dict[str, int] = {}
        self._devices: dict[str, int] = {}
        self._threads: dict[Any, int] = {}
        self._line: dict[int, int] = {}  # that each thread has come to
        self._ops: list[tuple[int, ...]] = []
        self._uses: list[tuple[int, ...]] = []

    def filled(self) -> Observed:
        row_of = {node.id: row for row, node in enumerate(self._nodes)}
        last = last_inside(self._nodes)
        for row, node in enumerate(self._nodes):
            schema = self._op(node, row_of.get(node.ctrl_deps, -1), row_of[last[node.id]])
            ways = _ways(node.name, schema)
            for at, tensors in _tensors(node.inputs):
                self._use(row, ways.get(at, READ), tensors)
            for _, tensors in _tensors(node.outputs):
                self._use(row, MAKE, tensors)
        ops = np.array(self._ops, np.int64).reshape(-1, 9).T
        uses = np.array(self._uses, np.int64).reshape(-1, 7).T
        return Observed(
            names=list(self._names),
            given=list(self._given),
            regions=list(self._regions),
            types=list(self._types),
            devices=list(self._devices),
            name=ops[0],
            parent=ops[1],
            last=ops[2],
            thread=ops[3],
            sequence=ops[4],
            is_op=ops[5].astype(bool),
            is_backward=ops[6].astype(bool),
            arguments=ops[7],
            line=ops[8],
            op=uses[0],
            way=uses[1],
            tensor=uses[2],
            storage=uses[3],
            region=uses[4],
            type=uses[5],
            device=uses[6],
        )

    def _op(self, node: Node, parent: int, last: int) -> str:
        """A row; its schema, which says what it does with what it is given."""
        known = {one.name: one.value for one in node.attrs}
        schema = str(known.get("op_schema") or "")
        name = self._names.setdefault(node.name, len(self._names))
        thread = self._threads.setdefault(known.get("tid", 0), len(self._threads))
        if node.name.startswith(LINE):
            self._line[thread] = name
        self._ops.append(
            (
                name,
                parent,
                last,
                thread,
                known.get("seq_id", -1),
                int(bool(schema)),
                int(known.get("scope") == _BACKWARD_SCOPE or node.name.startswith(_ENGINE)),
                self._given.setdefault(_besides_tensors(node.inputs), len(self._given)),
                self._line.get(thread, -1),
            )
        )
        return schema

    def _use(self, row: int, way: int, tensors: list[tuple[list[Any], list[Any], list[Any], str]]) -> None:
        for value, shape, strides, dtype in tensors:
            tensor, storage, offset, elements, width, device = value
            if not device and tensor and dtype and shape and all(shape):
                storage, region = -tensor, WITHOUT_STORAGE
            elif not elements or not device:
                continue
            else:
                region = _region(offset, shape, strides, width)
            self._uses.append(
                (
                    row,
                    way,
                    tensor,
                    storage,
                    self._regions.setdefault(region, len(self._regions)),
                    self._types.setdefault(dtype, len(self._types)),
                    self._devices.setdefault(device, len(self._devices)),
                )
            )


def _region(offset: int, shape: list[Any], strides: list[Any], width: int) -> Region:
    if len(strides) != len(shape):  # not recorded: as it lies when nothing was turned
        strides = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    pairs = ((stride * width, length) for stride, length in zip(strides, shape, strict=True))
    dims = sorted((pair for pair in pairs if pair[1] > 1 and pair[0] > 0), reverse=True)
    first = offset * width
    return Region(first, first + sum(s * (n - 1) for s, n in dims) + width, tuple(dims), width)


def _tensors(arguments: Arguments) -> list[tuple[int, list[tuple[list[Any], list[Any], list[Any], str]]]]:
    """For each argument that holds some: its tensors."""
    found = []
    for at, written in enumerate(arguments.types):
        dtypes = tensor_types(written)
        if not dtypes:
            continue
        value, shape, strides = (
            _at(column, at) for column in (arguments.values, arguments.shapes, arguments.strides)
        )
        single = written.startswith("Tensor(")
        values, shapes, all_strides = ([value], [shape], [strides]) if single else (value, shape, strides)
        whole = [
            (one, _at(shapes, k), _at(all_strides, k))
            for k, one in enumerate(values)
            if len(one) == _TENSOR_FIELDS and isinstance(one[-1], str)
        ]
        if len(whole) == len(dtypes):  # a list may hold what is no tensor
            found.append((at, [(*one, dtype) for one, dtype in zip(whole, dtypes, strict=True)]))
    return found


def _at(values: list[Any], at: int) -> list[Any]:
    found = values[at] if at < len(values) else []
    return found if isinstance(found, list) else []


def _besides_tensors(arguments: Arguments) -> bytes:
    """Numbers, flags and words; where a tensor stands, its type and shape."""
    parts: list[Any] = []
    for at, written in enumerate(arguments.types):
        if "Tensor(" in written:
            parts.append((written, arguments.shapes[at] if at < len(arguments.shapes) else None))
        else:
            parts.append(arguments.values[at] if at < len(arguments.values) else None)
    return msgspec.json.encode(parts)


@cache
def _ways(name: str, schema: str) -> dict[int, int]:
    """Which arguments an op changes, and whether it looks at them before: as its schema says."""
    found = dict.fromkeys(_STATISTICS.get(name, ()), CHANGE)
    inside = schema[schema.find("(") + 1 : schema.rfind(") ->")]
    arguments = [one.strip() for one in _parted(inside) if one.strip() != "*"]
    for at, one in enumerate(arguments):
        if "!" in one.split(" ")[0]:
            blind = one.split(" ")[-1].startswith("out") or (at == 0 and _OVERWRITES.search(name))
            found[at] = OVERWRITE if blind else CHANGE
    return found


def _parted(text: str) -> list[str]:
    """At commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
