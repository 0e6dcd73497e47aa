"""Fourier transforms: their arithmetic, and how often they go through memory."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from findwall.work.op_arguments import Arguments, Table, Work
from findwall.work.op_families import Family

OPS = ("_fft_r2c", "_fft_c2c", "_fft_c2r")
# FLOPs of a complex transform of n numbers, n log2 n times: the count of radix 2, by which transforms are
# measured. A real one has half of it.
_FLOPS = 5.0
# The lengths that libraries have fast kernels for are products of these. Others go through general kernels,
# or Bluestein's way: as a convolution, in transforms of twice the length and more.
RADICES = (2, 3, 5, 7)
# What a multiprocessor holds in its registers or its shared memory, on the largest there are: lines that fit
# in there together are transformed in one pass over memory.
_ON_CHIP_BYTES = 256 * 1024


class Transform(msgspec.Struct, frozen=True):
    """What an FFT op is asked for."""

    lengths: tuple[int, ...]  # of the signal, along each transformed dimension
    numbers: int  # of the signal, in all
    complex_bytes: int  # of one complex number
    double: bool
    real: bool  # the signal is: half of its spectrum says all

    @property
    def work(self) -> Work:
        part = 0.5 if self.real else 1.0
        moved = part * self.numbers * self.complex_bytes  # a real number has half the bytes, too
        return Work(
            flops=part * _FLOPS * self.numbers * math.log2(max(math.prod(self.lengths), 1)),
            read_bytes=moved,
            write_bytes=moved,
            math="fp64" if self.double else "fp32",
            # Between two passes a cache may hold all of it.
            table=Table(moved, 0.0, 2 * moved * (self.passes - 1)),
        )

    @property
    def passes(self) -> int:
        """How often all of it is read and written at least."""
        room = _ON_CHIP_BYTES // self.complex_bytes
        found, held = 0, room
        for length in self.lengths:
            held *= length
            if held > room:
                found, held = found + (1 if length <= room else 2), length
        return max(found, 1)

    def bytes_beyond(self, cache: float) -> float:
        """What it moves through memory, beside such a cache."""
        work = self.work
        return work.nbytes + (work.table.reread(cache) if work.table is not None else 0.0)

    def padded(self) -> Transform:
        """The same of the next lengths that have fast kernels."""
        lengths = tuple(map(smooth, self.lengths))
        numbers = self.numbers // math.prod(self.lengths) * math.prod(lengths)
        return replace(self, lengths=lengths, numbers=numbers)


def transform(op: str, arguments: Arguments) -> Transform:
    """What an op is asked for; a ValueError where that was not recorded."""
    (x,) = arguments.needed(0, rank=1)
    axes = arguments.numbers(1)
    dims = list(x.dims)
    if axes and op == "_fft_c2r":  # it is given half a spectrum, and how long the signal is
        dims[axes[-1]] = int(arguments.number(3) or 0)
    if not axes or min(dims) <= 0:
        raise ValueError("a transform's dimensions were not recorded")
    dtype = x.dtype.lower()
    complex_bytes = x.size if "complex" in dtype else 2 * x.size
    lengths = tuple(dims[axis] for axis in axes)
    return Transform(lengths, math.prod(dims), complex_bytes, "double" in dtype, op != "_fft_c2c")


def is_smooth(length: int) -> bool:
    """Whether a length has fast kernels."""
    for radix in RADICES:
        while length > 1 and length % radix == 0:
            length //= radix
    return length <= 1


def smooth(length: int) -> int:
    """The next length that has fast kernels: itself, or an even one, at which a real signal is half the
    work."""
    if is_smooth(length):
        return length
    return next(longer for longer in range(length + 1 + (length + 1) % 2, 2 * length, 2) if is_smooth(longer))


FAMILY = Family(dict.fromkeys(OPS, lambda op, arguments: transform(op, arguments).work))
