"""An op's work divided among the kernels it launched; nothing is charged twice.

Kernels that do the same thing share by duration. Kernels that do different things (a layout change before a
convolution, the reduction of a split-K product) are told apart by name and get their own figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.events import Bool, Kind, Timeline
from findwall.model.intervals import F64, I64
from findwall.step.kernel_names.name_parts import item_size_in_name
from findwall.work.op_arguments import Work
from findwall.work.op_owners import Owners
from findwall.work.work_by_name import elementwise_work

# Roles beside the numbers 0.. of a work's parts.
_MAIN, _ASIDE, _LAYOUT, _SLICES, _OWN, _NONE = -1, -2, -3, -4, -5, -6
# A role beside the number of its op or work in one key: so many roles at most, the lowest of them shifted
# to zero.
_ROLES = 64
_ROLE_SHIFT = 8
# Kernels that add up the slices of a product split along its inner dimension. cuBLAS and cuDNN write these
# names.
_SLICE_WORDS = (
    "splitkreduce",
    "reducesplitk",
    "reduce_wgrad",
    "splitk_reduce",
    "reduce_1block",
    "epilogue::impl::globalkernel",
    "scal_kernel",
)
# Kernels that carry a convolution into the Winograd or Fourier domain and back: the products are elsewhere.
_TRANSFORM_WORDS = ("winograd_nonfused", "generatewinograd", "fft2d_", "fft1d_", "flip_filter")
_CHUNK_ELEMENTS = 65536  # of a multi-tensor kernel's block: kChunkSize in PyTorch's MultiTensorApply.cuh


class Shares(msgspec.Struct):
    """What each row does."""

    flops: F64  # NaN unknown
    nbytes: F64  # NaN unknown
    cast: Bool  # a copy that changes the type
    saving: F64  # how many times fewer products than `flops` it may do
    work: I64  # the op's work it has a share of -> Owners.works; -1 none


class Rows(msgspec.Struct, frozen=True):
    """The device rows under division, as columns."""

    timeline: Timeline
    row: I64
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    duration: F64
    blocks: F64  # of the grid; NaN unknown
    classes: list[str]  # class by position in `class_of`
    class_index: NDArray[np.int64]

    def by_name(self, at: I64 | slice, value: Callable[[str], object], dtype: Any = np.bool_) -> NDArray[Any]:
        """A property of the kernels' names, worked out once per distinct name."""
        distinct, inverse = np.unique(self.name[at], return_inverse=True)
        return np.array([value(self.timeline.names[int(name)]) for name in distinct], dtype)[inverse]

    def elementwise(self, at: I64) -> list[Work | None]:
        """What the names and launch shapes of some rows give away, once per distinct pair."""
        names, details = self.timeline.names, self.timeline.details
        wide = any("vectorized_elementwise_kernel<8" in name for name in names)
        launches = self.timeline.events.launch[self.row[at]]
        keys, inverse = np.unique((self.name[at].astype(np.int64) << 32) + launches + 1, return_inverse=True)
        pairs = [(names[key >> 32], details.launch_of(key % (1 << 32) - 1)) for key in keys.tolist()]
        found = [elementwise_work(name, launch, wide) for name, launch in pairs]
        return [found[one] for one in inverse.tolist()]


class Cache(msgspec.Struct, frozen=True):
    """What decides how often a large operand is fetched. Zero bytes: unknown, so once."""

    nbytes: float = 0.0
    multiprocessors: int = 0


def divide(rows: Rows, owned: Owners, parameters: float | None, cache: Cache) -> Shares:
    count = len(rows.row)
    unknown = np.full(count, np.nan)
    saving = savings(rows.by_name(slice(None), products_saved, np.float64), owned.op)
    shares = Shares(unknown, unknown.copy(), np.zeros(count, bool), saving, owned.work.copy())
    role = _roles(rows, owned)
    _name_unnamed_parts(rows, owned, role)
    _share_out(rows, owned, role, shares, parameters, cache)
    _lay_out(rows, owned, role, shares)
    _transfers(rows, shares)
    return shares


def _roles(rows: Rows, owned: Owners) -> I64:
    role = np.full(len(rows.row), _NONE, np.int64)
    own = rows.kind != Kind.KERNEL
    role[own] = _OWN
    todo = np.flatnonzero((owned.work >= 0) & ~own)
    width = len(rows.timeline.names)
    distinct, first, inverse = np.unique(
        owned.work[todo] * width + rows.name[todo], return_index=True, return_inverse=True
    )
    found = np.empty(len(distinct), np.int64)
    for at, (key, sample) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
        kernel_class = rows.classes[int(rows.class_index[todo[sample]])]
        found[at] = _role(owned.works[key // width], rows.timeline.names[key % width].lower(), kernel_class)
    role[todo] = found[inverse]
    return role


def _role(work: Work, name: str, kernel_class: str) -> int:
    if work.tensor_core_able:
        if any(word in name for word in _SLICE_WORDS):
            return _SLICES
        if any(word in name for word in _TRANSFORM_WORDS):
            return _ASIDE
        if kernel_class not in MATRIX_CLASSES:
            return _LAYOUT if kernel_class == "copy" and work.layouts else _ASIDE
    for index, part in enumerate(work.parts):
        if any(word in name for word in part.words):
            return index
    return _MAIN


def _name_unnamed_parts(rows: Rows, owned: Owners, role: I64) -> None:
    """Main kernels of an op that is all parts take the parts no other kernel named.

    The two halves of a convolution's backward may both run as plain matrix products: input first. A half may
    launch the same kernel several times.
    """
    has_parts = np.array([bool(work.parts) for work in owned.works] + [False], bool)[owned.work]
    unnamed = (role == _MAIN) & has_parts
    theirs = np.flatnonzero((role >= _MAIN) & has_parts & np.isin(owned.op, owned.op[unnamed]))
    for mine in _by_op(owned, theirs, rows.timeline.events.start[rows.row[theirs]]):
        parts = owned.works[int(owned.work[mine[0]])].parts
        named = set(role[mine].tolist())
        open_parts = [index for index, part in enumerate(parts) if not part.named_only]
        free = [index for index in open_parts if index not in named] or open_parts[-1:]
        seen: dict[int, int] = {}
        for index in mine[role[mine] == _MAIN].tolist():
            order = seen.setdefault(int(rows.name[index]), len(seen))
            role[index] = free[min(order, len(free) - 1)]


def _by_op(owned: Owners, rows: I64, order: NDArray[Any]) -> list[I64]:
    """Rows of the same op together, each group in the order given."""
    rows = rows[np.lexsort((order, owned.op[rows]))]
    cuts = np.flatnonzero(np.diff(owned.op[rows])) + 1
    return [group for group in np.split(rows, cuts) if len(group)]


def _share_out(
    rows: Rows, owned: Owners, role: I64, shares: Shares, parameters: float | None, cache: Cache
) -> None:
    charged = np.flatnonzero((role >= _MAIN) | (role == _SLICES))
    part = role[charged] + _ROLE_SHIFT
    figures, inverse = _figures(owned, owned.work[charged], role[charged], cache)
    groups = owned.op[charged] * _ROLES + part
    fraction = _fractions(groups, rows.duration[charged])
    scale = _list_scale(rows, owned, charged, groups, parameters)
    shares.flops[charged] = figures[inverse, 0] * fraction * scale
    shares.nbytes[charged] = figures[inverse, 1] * fraction * scale
    shares.cast[charged] = np.array([work.cast for work in owned.works], bool)[owned.work[charged]]


def _figures(owned: Owners, work: I64, role: I64, cache: Cache) -> tuple[F64, I64]:
    """(FLOPs, bytes) of each distinct (work, role)."""
    distinct, inverse = np.unique(work * _ROLES + role + _ROLE_SHIFT, return_inverse=True)
    table = np.zeros((len(distinct), 2))
    for at, key in enumerate(distinct.tolist()):
        whole, kind = owned.works[key // _ROLES], key % _ROLES - _ROLE_SHIFT
        if kind >= 0:
            table[at] = whole.parts[kind].flops, whole.parts[kind].nbytes
        elif kind == _SLICES:
            table[at] = 0.0, 2 * whole.workspace + whole.write_bytes
        else:
            table[at] = whole.flops, whole.nbytes + _reread(whole, cache)
    return table, inverse


def _reread(work: Work, cache: Cache) -> float:
    if cache.nbytes <= 0 or cache.multiprocessors <= 0:
        return 0.0
    if work.table is not None:
        return work.table.reread(cache.nbytes)
    return 0.0 if work.product is None else work.product.reread(cache.nbytes, cache.multiprocessors)


def _fractions(groups: I64, duration: F64) -> F64:
    """Each row's part of its group's time."""
    _, inverse, count = np.unique(groups, return_inverse=True, return_counts=True)
    total = np.bincount(inverse, weights=duration)
    return np.where(total[inverse] > 0, duration / np.maximum(total[inverse], 1e-9), 1.0 / count[inverse])


def _list_scale(rows: Rows, owned: Owners, charged: I64, groups: I64, parameters: float | None) -> F64:
    """Corrections where an op's lists were not recorded: how many elements, and of what size.

    A multi-tensor kernel gives each block a chunk, so its blocks bound the elements from above.
    """
    scale = np.ones(len(charged))
    typed = np.array([work.type_from_kernel for work in owned.works], bool)[owned.work[charged]]
    if typed.any():
        size = rows.by_name(charged[typed], lambda name: item_size_in_name(name) or 4, np.float64)
        scale[typed] = size / 4
    listless = np.array([work.per_parameter for work in owned.works], bool)[owned.work[charged]]
    if listless.any():
        _, inverse = np.unique(groups[listless], return_inverse=True)
        chunks = np.bincount(inverse, weights=rows.blocks[charged[listless]]) * _CHUNK_ELEMENTS
        elements = np.fmin(chunks, np.nan if parameters is None else parameters)
        scale[listless] *= elements[inverse]
    return scale


def _lay_out(rows: Rows, owned: Owners, role: I64, shares: Shares) -> None:
    """Layout kernels inside a convolution: the longest one moves the largest tensor."""
    layout = np.flatnonzero(role == _LAYOUT)
    for mine in _by_op(owned, layout, -rows.duration[layout]):
        work = owned.works[int(owned.work[mine[0]])]
        names = [rows.timeline.names[int(rows.name[index])].lower() for index in mine]
        direction = np.array([_direction(name) for name in names])
        for at, sizes in enumerate((work.layouts, work.results, work.padded)):
            largest_first = sorted(sizes, reverse=True) or [0.0]
            for rank, index in enumerate(mine[direction == at].tolist()):
                size = largest_first[min(rank, len(largest_first) - 1)]
                shares.flops[index], shares.nbytes[index] = 0.0, 2 * size
    aside = role == _ASIDE
    # What a library does beside the op's own work (offsets, semaphores) need not be done at all.
    shares.flops[aside], shares.nbytes[aside] = 0.0, 0.0


def _direction(name: str) -> int:
    """0 into the library's layout, 1 back from it, 2 widening the channels."""
    if "padding" in name:
        return 2
    return 1 if "nhwctonchw" in name or "nhwc2nchw" in name else 0


def fill_from_names(rows: Rows, shares: Shares, allowed: Bool) -> None:
    """Kernels that nothing else explains, where their name and launch shape give the work away."""
    todo = np.flatnonzero(np.isnan(shares.nbytes) & (rows.kind == Kind.KERNEL) & allowed)
    if len(todo) == 0:
        return
    found = rows.elementwise(todo)
    table = np.array([(w.flops, w.nbytes, w.cast) if w else (np.nan, np.nan, 0) for w in found])
    known = ~np.isnan(table[:, 0])
    shares.flops[todo[known]] = table[known, 0]
    shares.nbytes[todo[known]] = table[known, 1]
    shares.cast[todo[known]] = table[known, 2] > 0


def _transfers(rows: Rows, shares: Shares) -> None:
    """Memcpy and memset move what they say; inside the device a copy reads and writes."""
    own = np.flatnonzero(rows.kind != Kind.KERNEL)
    nbytes = rows.timeline.events.nbytes[rows.row[own]].astype(np.float64)
    inside = np.array([rows.classes[int(index)] == "copy" for index in rows.class_index[own]], bool)
    nbytes = np.where(inside, 2 * nbytes, nbytes)
    shares.flops[own] = 0.0
    shares.nbytes[own] = np.where(nbytes >= 0, nbytes, np.nan)


# -- convolutions that do fewer products: Winograd's and Fourier's ----------------------------------------


# Times fewer products: exact for Winograd with 4 x 4 tiles of 3 x 3 taps, and about what a Fourier
# transform of small images saves.
_PRODUCTS_SAVED = 4.0
_SAVING_WORDS = ("winograd", "wino_", "fft2d", "fft1d", "cgemm")


def products_saved(name: str) -> float:
    """How many times fewer products a kernel of such a name does, at most."""
    return _PRODUCTS_SAVED if any(word in name.lower() for word in _SAVING_WORDS) else 1.0


def savings(factor: F64, op: I64) -> F64:
    """The same for each row: the transform and the product may be kernels of their own, so one such kernel
    speaks for its op."""
    if not (factor > 1).any():
        return factor
    _, groups = np.unique(op, return_inverse=True)
    best = np.ones(int(groups.max()) + 1)
    np.maximum.at(best, groups, factor)
    return np.where(op >= 0, best[groups], factor)
