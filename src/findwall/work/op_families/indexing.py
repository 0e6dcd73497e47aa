"""Embedding, gather, scatter and index: rows fetched or added by number, and sorting for them."""

from __future__ import annotations

import math

from findwall.work.op_arguments import SECTOR, Arguments, Part, Table, Tensor, Work
from findwall.work.op_families import Family

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
# Told by one pass over the input.
_PASSES = ("gather_backward", "topk", "kthvalue", "multinomial", "nonzero", "masked_select")
_COUNTS = ("histc", "bincount", "bucketize", "searchsorted")


def _row_bytes(tensor: Tensor) -> float:
    return float(max(math.prod(tensor.dims[1:]) * tensor.size, 1))


def _table(table: Tensor, fetched: float, ways: int = 1) -> Table:
    """Rows fetched out of a table by number, or written too: one that a cache holds moves once at most."""
    return Table(table.nbytes, min(fetched, table.nbytes), ways * max(fetched - table.nbytes, 0.0))


def _embedding(op: str, arguments: Arguments) -> Work | None:
    table, index = arguments.needed(0, 1)
    if len(table.dims) != 2:
        return None
    rows = _table(table, index.elements * max(_row_bytes(table), SECTOR))
    return Work(
        read_bytes=index.nbytes + rows.once,
        write_bytes=index.elements * _row_bytes(table),
        math="fp32",
        table=rows,
    )


def _bags(op: str, arguments: Arguments) -> Work | None:
    """A row fetched for each index, and one written for each bag: those of a bag are added up. It notes the
    bag of each index, too."""
    table, index, offsets = arguments.needed(0, 1, 2)
    if len(table.dims) != 2:
        return None
    rows = _table(table, index.elements * max(_row_bytes(table), SECTOR))
    return Work(
        flops=float(index.elements * table.dims[1]),
        read_bytes=index.nbytes + offsets.nbytes + rows.once,
        write_bytes=offsets.elements * _row_bytes(table) + index.nbytes,
        math="fp32",
        table=rows,
    )


def _bags_backward(op: str, arguments: Arguments) -> Work | None:
    """(gradient, indices, bag of each, bags' sizes, largest of each, rows of the table): sorts the indices,
    then adds up the gradients of the bags that each row was in."""
    gradient, index = arguments.needed(0, 1)
    row = float(gradient.dims[-1] * gradient.size)
    rows = min(index.elements, arguments.number(5) or index.elements)
    flops, sort = float(index.elements * gradient.dims[-1]), 8.0 * index.nbytes
    add = gradient.nbytes + 3 * index.nbytes + rows * row
    return Work(flops, add, sort, "fp32", parts=(Part(_SORT_WORDS, 0.0, sort), Part(("",), flops, add)))


def _embedding_backward(op: str, arguments: Arguments) -> Work | None:
    """Sorts the indices, then adds each row's gradients; the zeros under them are an op of their own."""
    gradient, index = arguments.needed(0, 1)
    touched = index.elements * float(gradient.dims[-1] * gradient.size)
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


def _select(op: str, arguments: Arguments) -> Work | None:
    x, index = arguments.needed(0, 2)
    axis = int(arguments.number(1) or 0) % len(x.dims)
    taken = x.elements / max(x.dims[axis], 1) * index.elements * x.size
    return Work(read_bytes=index.nbytes + taken, write_bytes=taken, math="fp32")


def _gather(op: str, arguments: Arguments) -> Work | None:
    """One element an index; scattered ones cost a sector each, neighbours along the last axis share."""
    x, index = arguments.needed(0, 2)
    rows = _table(x, index.elements * float(SECTOR if _scattered(x, arguments) else x.size))
    written = float(index.elements * x.size)
    return Work(read_bytes=index.nbytes + rows.once, write_bytes=written, math="fp32", table=rows)


def _scattered(x: Tensor, arguments: Arguments) -> bool:
    axis = arguments.number(1)
    return axis is not None and bool(x.dims) and int(axis) % len(x.dims) == len(x.dims) - 1


def _scatter(op: str, arguments: Arguments) -> Work | None:
    """(target, axis, index, source): reads index and source, reads and writes the touched targets."""
    (target, index), source = arguments.needed(0, 2), arguments.tensor(3)
    each = float(SECTOR if _scattered(target, arguments) else target.size)
    rows = _table(target, index.elements * each, ways=2)
    given = min(source.nbytes, index.elements * float(source.size)) if source is not None else 0.0
    return Work(float(index.elements), index.nbytes + given + rows.once, rows.once, "fp32", table=rows)


def _add_rows(op: str, arguments: Arguments) -> Work | None:
    """(target, axis, index, source)."""
    (target, index), source = arguments.needed(0, 2), arguments.tensor(3)
    moved = source.nbytes if source is not None else target.nbytes / max(target.dims[0], 1) * index.elements
    return Work(moved / target.size, index.nbytes + 2 * moved, moved, "fp32")


def _put(op: str, arguments: Arguments) -> Work | None:
    """(target, indices, values): the indices are not recorded, the values say how much is written."""
    target, values = arguments.needed(0, 2)
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
    (x,) = arguments.needed(0)
    values = row_length(op, arguments) if op in _SORT_ROWS else x.elements
    if values is not None and values <= _SHORT_ROW:
        return Work(4.0 * x.elements, x.nbytes, float(x.elements * (x.size + 8)), "fp32")
    moved = float(x.elements * (x.size + 8) * x.size)  # a pass for each byte
    return Work(4.0 * x.elements, moved, moved, "fp32")


def _scan(op: str, arguments: Arguments) -> Work | None:
    """Top-k, sampling, nonzero, histograms: at least one pass over the input."""
    (x,) = arguments.needed(1 if op == "searchsorted" else 0)
    return Work(4.0 * x.elements, x.nbytes, 0.0, "fp32")


FAMILY = Family(
    {
        "embedding": _embedding,
        **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _bags),
        "_embedding_bag_dense_backward": _bags_backward,
        **dict.fromkeys(("embedding_dense_backward", "embedding_backward"), _embedding_backward),
        "index_select": _select,
        **dict.fromkeys(("gather", "take_along_dim"), _gather),
        **dict.fromkeys(_SCATTER, _scatter),
        **dict.fromkeys(_ROWS, _add_rows),
        **dict.fromkeys(_PUT, _put),
        **dict.fromkeys(_SORT, _sort),
        **dict.fromkeys((*_PASSES, *_COUNTS), _scan),
    }
)
