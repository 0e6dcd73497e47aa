"""What torch's observer saw of whole iterations: ops, and the tensors that each of them used.

Columns of two tables. A row of ops is in the order in which ops began; a use is one tensor that one op was
given, changed or made. A tensor is a region of a storage: storages are known by where they lie, and a place
is used again once a storage is freed, so that alone it says little (`dataflow/linking.py`).
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.events import Bool
from findwall.model.intervals import F64, I64

# What an op does with a tensor.
READ, CHANGE, OVERWRITE, MAKE = range(4)

# Ranges that findwall itself puts into what is observed. Each holds a `detach` of every tensor it names.
STATE = "findwall::state"  # parameters and buffers of modules, when the first iteration begins
BUFFERS = "findwall::buffers"  # inside it, those that are no parameters
BORN = "findwall::born"  # a batch that a loader gives: no op made it
CUT = "findwall::step"  # between two iterations
SAME = "findwall::same"  # what else lies in the host's memory and did not change all the while
KEPT = "findwall::kept"  # what Python still holds when the last one ends
SEEN = "findwall::read"  # the host reads a tensor as it lies in memory
LINE = "findwall::line "  # the job comes to this line: "findwall::line train.py:88"
LOOK = "findwall::look"  # findwall looks at tensors: nothing of the job's
TARGETS = "findwall::targets "  # of a loss: those that count, of all, "findwall::targets 614/4096"
HELD = "findwall::held "  # what the next op looks rows up by, as a digest: the same numbers have the same
WRITTEN = "findwall::written "  # a tensor that is made of numbers of Python's, which the digest tells
FILLED = "findwall::filled "  # places of a batch up to the end of its longest sample, of all: "… 118/512"
# Of an attention's mask: positions that it lets through, of all, and blocks of them that have any, of all,
# "findwall::mask 4063488/67108864 310/4096".
MASK = "findwall::mask "
ZEROS = "findwall::zeros "  # of a matrix: numbers that are not zero, of some that were drawn, "… 83/262144"
NUMBERS = "findwall::numbers "  # the next op is called with these of Python's: "findwall::numbers 0.5 2"
OURS = "findwall::"

PLACE_BYTES = 8  # of the column of a number in a sparse matrix
MASK_BLOCK = 128  # positions of a side: what kernels that pass over blocks compute or leave out


# What an op is for (`dataflow/roles.py`).
Role = Literal[
    "data", "forward", "loss", "backward", "update", "average", "evaluation", "teacher", "metric", "other"
]
ROLES: tuple[Role, ...] = get_args(Role)


class Region(msgspec.Struct, frozen=True):
    """Which bytes of a storage a tensor is: the first, the one past the last, and (stride, length) of each
    dimension that is longer than one, widest stride first."""

    first: int
    end: int
    dims: tuple[tuple[int, int], ...]
    width: int  # bytes of an element

    @property
    def is_whole(self) -> bool:
        """Whether it has every byte between its first and its last."""
        reached = self.width
        for stride, length in reversed(self.dims):
            if stride != reached:
                return False
            reached *= length
        return True


class Observed(msgspec.Struct, frozen=True):
    """Some iterations of a job, op by op."""

    names: list[str]
    given: list[bytes]  # what ops were given besides tensors, each once
    regions: list[Region]
    types: list[str]  # of numbers, as torch's C++ calls them
    devices: list[str]
    # an op each
    name: I64
    parent: I64  # the row around it; -1 none
    last: I64  # the last row that began inside it; itself where none did
    thread: I64
    sequence: I64  # of autograd: that of the forward op, also on its backward; -1 none
    is_op: Bool  # it has a schema: no range, and no node of autograd's
    is_backward: Bool  # a node of autograd's, which runs what is inside
    arguments: I64  # into `given`
    line: I64  # of the job's own, into `names`: where it was called; -1 unknown
    # a use each, by the op
    op: I64
    way: I64
    tensor: I64  # the same number may be another tensor later
    storage: I64  # the same number may be another storage later
    region: I64
    type: I64
    device: I64

    def __len__(self) -> int:
        return len(self.name)

    def uses_of(self, row: int) -> slice:
        first, end = np.searchsorted(self.op, [row, row + 1])
        return slice(int(first), int(end))


# For nothing: gradients that nobody uses, results that nobody reads, what was computed before in the same
# step, what every step computes alike, an evaluation in every step; and work on rows: those that are thrown
# away behind it, that were repeated before it, that an earlier pass has worked on, that only fill a batch up;
# attention to positions that its mask leaves out; and products with zeros.
Needless = Literal[
    "gradients",
    "unread",
    "always",
    "twice",
    "passes",
    "evaluation",
    "dropped",
    "repeated",
    "grown",
    "filled",
    "masked",
    "zeros",
]


class Unneeded(msgspec.Struct, frozen=True):
    """What a step does for nothing, of one kind."""

    kind: Needless
    atoms: I64  # device time
    op: int  # the row of the trace that takes most of it; -1 unknown
    ops: int  # of a step; 0 unknown
    place: str  # the job's own line; empty where nobody knows it
    gradients: int = 0  # parameters whose gradient nobody takes away, of a step
    # Where rows are too many:
    left: F64 | None = None  # for each atom, the share that has to be done; under a mask by whole blocks
    through: F64 | None = None  # for each atom under a mask, the share of positions that it lets through
    near: Bool | None = None  # for each atom: no other product lies between it and what picks the rows
    pick: str = ""  # the job's own line that picks or repeats them
    moved: float = 0.0  # bytes of a step that picking them right before the nearest work would move
    passes: float = 0.0  # of a model in a step that old tokens go through again

    def needless(self, own: F64) -> float:
        """What of it need not be done. `own`: the time of every atom."""
        mine = own[self.atoms]
        return float((mine if self.left is None else mine * (1.0 - self.left)).sum())

    @property
    def whole(self) -> I64:
        """Atoms of which most need not be."""
        return self.atoms if self.left is None else self.atoms[self.left < MAJORITY_SHARE]


class LineLoop(msgspec.Struct, frozen=True):
    """A loop of the job's own lines of which no round reads what another made, sums apart."""

    rounds: int
    place: str  # the line that begins a round
    atoms: I64  # device time of all rounds, with what the backward pass does for them
    first: Bool  # for each atom: it is of the first round
    calls: I64  # rows of the trace: all that the host does in ops of these rounds
    ops: int  # that a round calls, on average
    parameters: bool  # each round changes a parameter of its own
    unseen: bool  # the host takes what a round made, and hands tensors to later ones
    gradients: bool = False  # each round goes back through one and the same forward pass


class Batches(msgspec.Struct, frozen=True):
    """Made in the training loop by the job's own code: a stretch of the traced host each."""

    start: I64
    end: I64
    thread: int
    lines: tuple[str, ...]  # the job's own that it is at, as far as anybody knows, longest first


class WrittenCell(msgspec.Struct, frozen=True):
    """Rounds of a recurrent cell that the job writes out, of all loops of one kind of cell."""

    layer: str  # of the library, that does all rounds in one call
    rounds: int  # of a step
    place: str  # the line of a round's first product; empty where nobody knows it
    atoms: I64  # device time of all rounds, with what the backward pass does for them


class ProductStep(msgspec.Struct, frozen=True):
    """Two operands or earlier results made one: results are numbered behind the operands."""

    left: int
    right: int
    place: str = ""  # the job's own line; empty where nobody knows it
    forward: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))  # atoms
    backward: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))


class ProductTree(msgspec.Struct, frozen=True):
    """Products of which each but the last is read by the next one alone: one sum over all their operands.
    Labels are numbers; one that the result lacks is summed over."""

    operands: tuple[tuple[int, ...], ...]  # the labels of each
    types: tuple[str, ...]  # of their numbers
    result: tuple[int, ...]
    sizes: tuple[int, ...]  # of each label
    steps: tuple[ProductStep, ...]


class SparseProduct(msgspec.Struct, frozen=True):
    """A product with a matrix that was looked at for zeros, and stays as it is."""

    rows: int  # of the matrix, as it is multiplied from the left
    columns: int
    width: int  # how many columns it is multiplied with
    dtype: str
    size: int  # bytes of a number
    share: float  # of its numbers those that are not zero
    on_left: bool  # so it is written; else it is multiplied from the right
    place: str  # the job's own line; empty where nobody knows it
    forward: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))  # atoms
    backward: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    left: tuple[float, float] = (1.0, 1.0)  # of either's time, what a sparse product would take

    @property
    def entries(self) -> float:
        return self.share * self.rows * self.columns

    @property
    def nbytes(self) -> float:
        """What a sparse product moves: each number with its place and a row of the other side, the result."""
        row = self.width * self.size
        return self.entries * (row + self.size + PLACE_BYTES) + max(self.rows, self.columns) * row

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])


class ScaledWeight(msgspec.Struct, frozen=True):
    """A convolution with a weight for each sample, all of them one weight with its channels scaled."""

    samples: int
    weight: tuple[int, ...]  # of one sample: channels that it makes, channels that it reads, its window
    maps: tuple[int, ...]  # height and width, or as many as there are
    results: int  # places of what it makes, of one sample
    dtype: str  # of the maps
    base: str  # of the weight that is scaled
    reads: bool  # channels that it reads are scaled
    makes: bool  # channels that it makes are scaled
    lengths: bool  # by the weights' own lengths
    how: tuple[tuple[int, ...], ...]  # stride, padding and dilation
    place: str  # the job's own line; empty where nobody knows it
    forward: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))  # atoms
    backward: I64 = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def atoms(self) -> I64:
        return np.concatenate([self.forward, self.backward])
