"""What an op must do: FLOPs and bytes, and which of its kernels does which part of it."""

from __future__ import annotations

import math

import msgspec


class Part(msgspec.Struct, frozen=True):
    """One kernel's share where an op launches kernels that do different things.

    A kernel belongs to the first part one of whose words is in its lower-case name.
    """

    words: tuple[str, ...]
    flops: float = 0.0
    nbytes: float = 0.0
    named_only: bool = False  # no kernel without one of the words does this part


# Outputs a multiprocessor works on at a time: a tile of 128 by 256, as the large kernels have it.
_TILE_OUTPUTS = 128 * 256


class Product(msgspec.Struct, frozen=True):
    """A matrix product's operands, as far as they decide how often each is read."""

    left: float  # bytes
    right: float
    rows: int
    columns: int
    inner_bytes: float  # of one row of the left operand

    def reread(self, cache: float, multiprocessors: int) -> float:
        """Bytes read beyond once each.

        The device works on a block of outputs at a time, as square as it can. An operand that does not stay
        in cache is read again for every block beside it; a small one stays, and so both are read once.
        """
        if min(self.left, self.right) <= cache or min(self.rows, self.columns) == 0:
            return 0.0
        outputs = multiprocessors * _TILE_OUTPUTS
        across = min(self.columns, math.isqrt(outputs))
        down = min(self.rows, max(outputs // across, 1))
        left = self.left * (math.ceil(self.columns / across) - 1)
        right = self.right * (math.ceil(self.rows / down) - 1)
        panels = (across + down) * self.inner_bytes
        return min(left, right) if panels <= cache else left + right


class Table(msgspec.Struct, frozen=True):
    """What an op fetches by number: bytes of it all, at least, and again where it does not stay in cache."""

    nbytes: float
    once: float
    again: float

    def reread(self, cache: float) -> float:
        return self.again if self.nbytes > cache else 0.0


class Work(msgspec.Struct, frozen=True):
    """The least an op can do with the inputs it was given.

    FLOPs of pointwise work are vector-pipe operations (a tanh costs tens of them), not a model's FLOPs.
    """

    flops: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0
    math: str | None = None  # the data's format; which pipe computes it is the kernel's matter
    tensor_core_able: bool = False
    misaligned: tuple[str, ...] = ()  # the dims that keep 16-bit operands off the fast kernels
    parts: tuple[Part, ...] = ()
    product: Product | None = None
    table: Table | None = None
    workspace: float = 0.0  # bytes of one result in fp32: what a split-K reduction reads a slice of
    layouts: tuple[float, ...] = ()  # bytes of the tensors a library may re-lay out first, in its order
    results: tuple[float, ...] = ()  # bytes of the results it may lay back
    padded: tuple[float, ...] = ()  # bytes of the tensors it may widen to whole vectors of channels
    cast: bool = False  # a copy that changes the type
    per_parameter: bool = False  # figures are of one parameter: its lists were not recorded
    type_from_kernel: bool = False  # figures assume 4 bytes an element; the kernel's name may say otherwise

    @property
    def nbytes(self) -> float:
        return self.read_bytes + self.write_bytes
