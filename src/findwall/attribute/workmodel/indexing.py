"""Embedding, gather, scatter and index: rows fetched or added by number, and sorting for them."""

from __future__ import annotations

import math

from findwall.attribute.workmodel.arguments import SECTOR, Arguments, Tensor
from findwall.attribute.workmodel.work import Part, Work

_CACHED_TABLE_BYTES = 40e6  # about what the L2 of a large device keeps: an A100 has 40 MB, an H200 50 MB
_SORT_WORDS = (
    "sort",
    "cub::",
    "thrust",
    "rocprim",
    "krn_partial",
    "partial_segment",
    "segment_offset",
    "scan",
)
_SCATTER = frozenset(
    {"scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"}
)
_ROWS = frozenset({"index_add", "index_add_", "index_copy", "index_copy_", "index_fill_"})
_PUT = frozenset({"index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"})
_SORT_ROWS = frozenset({"sort", "argsort", "msort"})
_SORT = frozenset({"_unique2", "unique_dim", "unique_consecutive"}) | _SORT_ROWS
_SHORT_ROW = 4096  # values: torch sorts rows up to here on the chip, in one pass over memory
_AXIS_LATER = frozenset({"topk", "kthvalue"})  # (x, k, axis)
OPS = (
    frozenset(
        {"embedding", "embedding_dense_backward", "embedding_backward", "_embedding_bag", "index_select"}
    )
    | {
        "gather",
        "take_along_dim",
        "gather_backward",
        "topk",
        "kthvalue",
        "multinomial",
        "nonzero",
        "masked_select",
        "histc",
        "bincount",
        "bucketize",
        "searchsorted",
    }
    | (_SCATTER | _ROWS | _PUT | _SORT)
)


def indexing_work(op: str, arguments: Arguments) -> Work | None:
    if op in ("embedding", "_embedding_bag"):
        return _embedding(arguments)
    if op in ("embedding_dense_backward", "embedding_backward"):
        return _embedding_backward(arguments)
    if op == "index_select":
        return _select(arguments)
    if op in ("gather", "take_along_dim"):
        return _gather(arguments)
    if op in _SCATTER:
        return _scatter(arguments)
    if op in _ROWS:
        return _add_rows(arguments)
    if op in _PUT:
        return _put(arguments)
    if op in _SORT:
        return _sort(op, arguments)
    return _scan(arguments, 1 if op == "searchsorted" else 0)


def _row_bytes(tensor: Tensor) -> float:
    return float(max(math.prod(tensor.dims[1:]) * tensor.size, 1))


def _fetched(table: Tensor, nbytes: float) -> float:
    """Bytes fetched out of a table by number: one that a cache holds is read once at most."""
    return min(nbytes, table.nbytes) if table.nbytes <= _CACHED_TABLE_BYTES else nbytes


def _embedding(arguments: Arguments) -> Work | None:
    table, index = arguments.tensor(0), arguments.tensor(1)
    if table is None or index is None or len(table.dims) != 2:
        return None
    return Work(
        flops=0.0,
        read_bytes=index.nbytes + _fetched(table, index.elements * max(_row_bytes(table), SECTOR)),
        write_bytes=index.elements * _row_bytes(table),
        math="fp32",
    )


def _embedding_backward(arguments: Arguments) -> Work | None:
    """Sorts the indices, then adds each row's gradients; the zeros under them are an op of their own."""
    gradient, index = arguments.tensor(0), arguments.tensor(1)
    if gradient is None or index is None or not gradient.dims:
        return None
    rows = index.elements
    touched = rows * float(gradient.dims[-1] * gradient.size)
    vocabulary = arguments.number(2)
    if vocabulary:  # the rows are sorted first, so each is written once
        touched = min(touched, vocabulary * gradient.dims[-1] * gradient.size)
    add = gradient.nbytes + 2 * index.nbytes + 2 * touched
    sort = 8.0 * index.nbytes
    return Work(
        flops=float(gradient.elements),
        read_bytes=add,
        write_bytes=sort,
        math="fp32",
        parts=(Part(_SORT_WORDS, 0.0, sort), Part(("",), float(gradient.elements), add)),
    )


def _select(arguments: Arguments) -> Work | None:
    x, index = arguments.tensor(0), arguments.tensor(2)
    if x is None or index is None or not x.dims:
        return None
    axis = int(arguments.number(1) or 0) % len(x.dims)
    taken = x.elements / max(x.dims[axis], 1) * index.elements * x.size
    return Work(read_bytes=index.nbytes + taken, write_bytes=taken, math="fp32")


def _gather(arguments: Arguments) -> Work | None:
    """One element an index; scattered ones cost a sector each, neighbours along the last axis share."""
    x, index = arguments.tensor(0), arguments.tensor(2)
    if x is None or index is None:
        return None
    read = _fetched(x, index.elements * float(SECTOR if _scattered(x, arguments) else x.size))
    return Work(read_bytes=index.nbytes + read, write_bytes=float(index.elements * x.size), math="fp32")


def _scattered(x: Tensor, arguments: Arguments) -> bool:
    axis = arguments.number(1)
    return axis is not None and bool(x.dims) and int(axis) % len(x.dims) == len(x.dims) - 1


def _scatter(arguments: Arguments) -> Work | None:
    """(target, axis, index, source): reads index and source, reads and writes the touched targets."""
    target, index, source = arguments.tensor(0), arguments.tensor(2), arguments.tensor(3)
    if target is None or index is None:
        return None
    each = float(SECTOR if _scattered(target, arguments) else target.size)
    touched = _fetched(target, index.elements * each)
    given = min(source.nbytes, index.elements * float(source.size)) if source is not None else 0.0
    return Work(float(index.elements), index.nbytes + given + touched, touched, "fp32")


def _add_rows(arguments: Arguments) -> Work | None:
    """(target, axis, index, source)."""
    target, index, source = arguments.tensor(0), arguments.tensor(2), arguments.tensor(3)
    if target is None or index is None:
        return None
    moved = source.nbytes if source is not None else target.nbytes / max(target.dims[0], 1) * index.elements
    return Work(moved / target.size, index.nbytes + 2 * moved, moved, "fp32")


def _put(arguments: Arguments) -> Work | None:
    """(target, indices, values): the indices are not recorded, the values say how much is written."""
    target, values = arguments.tensor(0), arguments.tensor(2)
    if target is None or values is None:
        return None
    moved = float(values.elements * target.size)
    add = 3 * moved if arguments.flag(3) is True else 2 * moved
    sort = 12.0 * 2 * values.dims[0] if values.dims else 0.0
    return Work(
        float(values.elements),
        add,
        sort,
        "fp32",
        parts=(Part(_SORT_WORDS, 0.0, sort), Part(("",), float(values.elements), add)),
    )


def row_length(op: str, arguments: Arguments) -> int | None:
    """How many values an op orders or selects from at a time; None where its axis is not known."""
    x = arguments.tensor(0)
    if x is None or not x.dims:
        return None
    axis = arguments.number(2 if op in _AXIS_LATER else 1)
    if axis is None and op in _SORT_ROWS:  # a stable sort has its flag first
        axis = arguments.number(2)
    if axis is None:
        return x.dims[0] if len(x.dims) == 1 or op == "msort" else None
    return x.dims[int(axis) % len(x.dims)]


def _sort(op: str, arguments: Arguments) -> Work | None:
    """Keys and 8-byte positions: short rows in one pass, others in radix passes of 8 bits."""
    x = arguments.tensor(0)
    if x is None:
        return None
    values = row_length(op, arguments) if op in _SORT_ROWS else x.elements
    if values is not None and values <= _SHORT_ROW:
        return Work(4.0 * x.elements, x.nbytes, float(x.elements * (x.size + 8)), "fp32")
    passes = x.size
    moved = float(x.elements * (x.size + 8) * passes)
    return Work(4.0 * x.elements, moved, moved, "fp32")


def _scan(arguments: Arguments, at: int) -> Work | None:
    """Top-k, sampling, nonzero, histograms: at least one pass over the input."""
    x = arguments.tensor(at)
    if x is None:
        return None
    return Work(4.0 * x.elements, x.nbytes, 0.0, "fp32")
