"""Kernels without an op, as in a replayed graph: their work from a twin, or from the chain they stand in.

What one kernel of a chain writes the next one reads. Elementwise kernels give their element counts away, a
row-wise norm its rows; so a product between them has its inner dimension from the kernel before it and its
columns from the kernel after it, or from its own tiles.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from findwall.model.catalogue import CLASS_INDEX, FAIR_PART
from findwall.model.events import Bool, Kind
from findwall.model.intervals import F64, I64
from findwall.step.kernel_names.name_parts import item_size_in_name
from findwall.work.division import Rows, Shares
from findwall.work.work_facts import TOO_SMALL_NS

_ROW_A_BLOCK = re.compile(
    r"layer_norm_kernel|rms_norm|rmsnorm|rowwisemoments|layernormforward", re.IGNORECASE
)
_TILES = re.compile(r"(?:nvjet\w*?_[a-z]+_|tilesize|gemm_(?:\w*?_)?|MT)(\d+)x(\d+)")
_SPLIT = re.compile(r"split_?k", re.IGNORECASE)
_SLICES_BYTES = 2 * 4.0  # an element of two fp32 slices: a product is split in two at least


class _Chain(msgspec.Struct):
    """The kernels of every stream in order, one stream after the other, without what moves no activations."""

    at: I64  # -> Rows
    stream: I64
    elements: F64  # of elementwise kernels: what they read and write; of norms: the same, once known
    norm_rows: F64  # of row-wise norms
    gemm: Bool
    slices: Bool
    attention: Bool

    @property
    def norm(self) -> Bool:
        return ~np.isnan(self.norm_rows)

    def before(self, values: F64) -> F64:
        """What stands before each kernel on its stream; NaN before the first."""
        return np.where(np.diff(self.stream, prepend=-1) == 0, np.roll(values, 1), np.nan)

    def after(self, values: F64) -> F64:
        return np.where(np.diff(self.stream, append=-1) == 0, np.roll(values, -1), np.nan)


class Device(msgspec.Struct, frozen=True):
    """What bounds a guess: infinite or zero where the device is not known."""

    multiprocessors: int
    flops: float  # the fastest it could be
    bandwidth: float
    cache: float


def fill_from_chain(rows: Rows, shares: Shares, allowed: Bool, device: Device) -> None:
    """Fill unknown norms, products and attention in place.

    A guess that would need more than the device has is dropped.
    """
    unknown = np.isnan(shares.nbytes) & (rows.kind == Kind.KERNEL) & allowed
    chain = _chain(rows, unknown)
    if len(chain.at):
        height, width = _norms(rows, chain)
        _fill(rows, shares, unknown, chain, height, width, device)


def _chain(rows: Rows, unknown: Bool) -> _Chain:
    """Of the streams with something unknown and a norm: without one nothing tells how many rows there are."""
    stream = rows.timeline.events.thread[rows.row].astype(np.int64)
    by_row = rows.by_name(slice(None), lambda name: _ROW_A_BLOCK.search(name) is not None)
    by_row &= (rows.class_index != CLASS_INDEX["copy"]) & (rows.kind == Kind.KERNEL)
    norm_rows = np.where(by_row, rows.blocks, np.nan)
    told = np.intersect1d(stream[unknown], stream[~np.isnan(norm_rows)])
    mine = (rows.class_index != CLASS_INDEX["copy"]) & (rows.kind == Kind.KERNEL) & np.isin(stream, told)
    at = np.flatnonzero(mine)
    at = at[np.lexsort((rows.timeline.events.start[rows.row[at]], stream[at]))]
    slices = rows.by_name(at, lambda name: "splitkreduce" in name.lower())
    return _Chain(
        at=at,
        stream=stream[at],
        elements=_elements(rows, at),
        norm_rows=norm_rows[at],
        gemm=(rows.class_index[at] == CLASS_INDEX["matmul"]) & ~slices,
        slices=slices,
        attention=rows.class_index[at] == CLASS_INDEX["attention"],
    )


def _elements(rows: Rows, mine: I64) -> F64:
    """Element counts of elementwise kernels; NaN for others."""
    size: F64 = rows.by_name(mine, lambda name: item_size_in_name(name) or 4, np.float64)
    return np.array([work.write_bytes if work else np.nan for work in rows.elementwise(mine)]) / size


def _norms(rows: Rows, chain: _Chain) -> tuple[F64, F64]:
    """Rows and width of the stream of activations at each place, by the nearest norm before it.

    A norm reads what the elementwise kernel before it wrote; norms of the same launch are alike.
    """
    width = chain.before(chain.elements) / chain.norm_rows
    width[~(width == np.floor(width))] = np.nan
    launch = rows.timeline.events.launch[rows.row[chain.at]].astype(np.int64)
    _, alike = np.unique(np.stack([chain.stream, launch])[:, chain.norm], axis=1, return_inverse=True)
    width[chain.norm] = _usual(width[chain.norm], alike.reshape(-1))
    chain.elements[chain.norm] = (chain.norm_rows * width)[chain.norm]
    return _carried(chain, chain.norm_rows), _carried(chain, width)


def _usual(values: F64, group: I64) -> F64:
    """For each entry what its group has most often, of equals the least; NaN where none is known."""
    known = ~np.isnan(values)
    pairs, counts = np.unique(np.stack([group[known], values[known]]), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    groups, first = np.unique(pairs[0][order], return_index=True)
    usual = np.full(int(group.max(initial=-1)) + 1, np.nan)
    usual[groups.astype(np.int64)] = pairs[1][order[first]]
    return usual[group]


def _carried(chain: _Chain, values: F64) -> F64:
    """Each place's last known value on its stream; the first known one before that."""
    known = np.flatnonzero(~np.isnan(values))
    after = np.searchsorted(known, np.arange(len(values)), "right")
    found = np.full(len(values), np.nan)
    for which in (after, after - 1):  # what stands before comes last, and so counts
        there = (which >= 0) & (which < len(known))
        there[there] = chain.stream[known[which[there]]] == chain.stream[there]
        found[there] = values[known[which[there]]]
    return found


def _fill(
    rows: Rows, shares: Shares, unknown: Bool, chain: _Chain, height: F64, width: F64, device: Device
) -> None:
    stream = height * width
    given = chain.before(np.where(chain.attention, stream, chain.elements))
    following = _following(chain)
    wanted = np.where(np.isnan(following), _tiled(rows, chain, height, device.multiprocessors), following)
    size = rows.by_name(chain.at, lambda name: item_size_in_name(name) or 2, np.float64)
    inner, columns = given / height, wanted / height
    sound = (inner >= 1) & (columns >= 1) & (inner == np.floor(inner)) & (columns == np.floor(columns))
    product = chain.gemm & sound
    flops, nbytes = np.full(len(stream), np.nan), np.full(len(stream), np.nan)
    flops[product] = (2 * height * inner * columns)[product]
    nbytes[product] = (2.0 * (given + inner * columns + wanted))[product]
    nbytes[chain.norm] = (2 * chain.elements * size)[chain.norm]
    nbytes[chain.slices] = ((_SLICES_BYTES + 2) * following)[chain.slices]
    # Attention whose length is unknown is all start-up if it is short.
    brief = chain.attention & (rows.duration[chain.at] < TOO_SMALL_NS)
    nbytes[brief] = (4 * 2 * stream)[brief]
    flops[~product] = np.where(np.isnan(nbytes), np.nan, 0.0)[~product]
    seconds = rows.duration[chain.at] / 1e9
    possible = (flops <= seconds * device.flops) & (nbytes <= seconds * device.bandwidth + device.cache)
    todo = unknown[chain.at] & possible
    shares.flops[chain.at[todo]] = flops[todo]
    shares.nbytes[chain.at[todo]] = nbytes[todo]


def _following(chain: _Chain) -> F64:
    """What the next kernel reads, looking past the reduction of a split product."""
    after = chain.after(chain.elements)
    return np.where(chain.after(chain.slices.astype(np.float64)) == 1, chain.after(after), after)


def _tiled(rows: Rows, chain: _Chain, height: F64, multiprocessors: int) -> F64:
    """Outputs of a product whose tiles all run at once, so that its blocks count them."""
    low = rows.by_name(chain.at, lambda name: min(_tile(name)), np.float64)
    high = rows.by_name(chain.at, lambda name: max(_tile(name)), np.float64)
    blocks = rows.blocks[chain.at]
    # Fewer rows than a tile is high: the tiles lie side by side.
    outputs = blocks * high * np.minimum(low, height)
    return np.where(chain.gemm & (blocks < multiprocessors), outputs, np.nan)


def _tile(name: str) -> tuple[float, float]:
    tile = _TILES.search(name)
    if tile is None or _SPLIT.search(name):
        return np.nan, np.nan
    return float(tile.group(1)), float(tile.group(2))


# -- twins: what the same kernel did where its op was recorded --------------------------------------------
#
# The first window of a trace holds kernels of earlier steps; a replayed graph holds kernels without ops.
# Where the same kernel with the same launch shape is known elsewhere, its work is known here too: that of
# the one that took about as long.


def fill_from_twins(rows: Rows, shares: Shares, math_index: NDArray[np.int8], allowed: Bool) -> None:
    """Fill unknown work in place from rows of the same name and launch shape."""
    unknown = np.isnan(shares.nbytes) & (rows.kind == Kind.KERNEL) & allowed
    known = ~np.isnan(shares.nbytes) & (rows.kind == Kind.KERNEL)
    launch = rows.timeline.events.launch[rows.row].astype(np.int64)
    exact = rows.name.astype(np.int64) * (int(launch.max(initial=-1)) + 2) + launch + 1
    shapeless = unknown & (launch < 0)
    _match(rows, shares, math_index, np.flatnonzero(unknown & ~shapeless), np.flatnonzero(known), exact)
    by_name = rows.name.astype(np.int64)
    _match(rows, shares, math_index, np.flatnonzero(shapeless), np.flatnonzero(known), by_name)


def _match(
    rows: Rows, shares: Shares, math_index: NDArray[np.int8], unknown: I64, known: I64, key: I64
) -> None:
    known = known[np.isin(key[known], key[unknown])]
    if len(known) == 0:
        return
    twin = _nearest(key, rows.duration, unknown, known)
    found = twin >= 0
    unknown, twin = unknown[found], twin[found]
    # One grid serves many shapes: a twin takes about as long.
    near = np.abs(rows.duration[twin] - rows.duration[unknown]) <= FAIR_PART * rows.duration[unknown]
    unknown, twin = unknown[near], twin[near]
    for column in (shares.flops, shares.nbytes, shares.cast, shares.saving, shares.work, math_index):
        column[unknown] = column[twin]


def _nearest(key: I64, duration: NDArray[np.float64], unknown: I64, known: I64) -> I64:
    """For each unknown row the known one of the same key that is nearest in duration; -1 none."""
    every = np.concatenate((known, unknown))
    every = every[np.lexsort((duration[every], key[every]))]
    given = np.isin(every, known)
    place = np.arange(len(every))
    before = np.maximum.accumulate(np.where(given, place, -1))
    after = np.minimum.accumulate(np.where(given, place, len(every))[::-1])[::-1]
    at = np.flatnonzero(~given)
    distance, choice = np.full(len(at), np.inf), np.full(len(at), -1, np.int64)
    for beside, exists in ((before[at], before[at] >= 0), (after[at], after[at] < len(every))):
        other = every[np.where(exists, beside, 0)]
        apart = np.where(
            exists & (key[other] == key[every[at]]), np.abs(duration[other] - duration[every[at]]), np.inf
        )
        choice = np.where(apart < distance, other, choice)
        distance = np.minimum(apart, distance)
    result = np.full(len(key), -1, np.int64)
    result[every[at]] = choice
    return result[unknown]
