"""An op's recorded arguments, position by position: tensors, lists of them, numbers and flags."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from findwall.model.events import Inputs
from findwall.model.machine import math_of_dtype

_SIZES = {
    "double": 8,
    "float": 4,
    "c10::half": 2,
    "half": 2,
    "c10::bfloat16": 2,
    "bfloat16": 2,
    "long int": 8,
    "long": 8,
    "unsigned long": 8,
    "int": 4,
    "unsigned int": 4,
    "short int": 2,
    "short": 2,
    "unsigned short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "char": 1,
    "byte": 1,
    "bool": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
SECTOR = 32  # bytes: the least that DRAM hands out
HALF_BYTES = 2  # of an element of either 16-bit float
VECTOR_ELEMENTS = 8  # of 16 bits in the 16 bytes that one load takes


def item_size(dtype: str) -> int | None:
    dtype = dtype.lower()
    if "float8" in dtype or "float4" in dtype:
        return 1
    return _SIZES.get(dtype)


def is_floating(dtype: str) -> bool:
    return any(word in dtype.lower() for word in ("float", "half", "double"))


class Tensor(msgspec.Struct, frozen=True):
    dims: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None
    size: int  # bytes an element

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def nbytes(self) -> float:
        """Bytes of memory behind it that must be touched once: an expanded dimension counts once."""
        if self.strides is None or len(self.strides) != len(self.dims) or not self.dims:
            return float(self.elements * self.size)
        return _touched(self.dims, self.strides, self.size)

    @property
    def math(self) -> str | None:
        return math_of_dtype(self.dtype)


def _touched(dims: Sequence[int], strides: Sequence[int], size: int) -> float:
    """Bytes read to reach every element once, in whole sectors where the runs are short."""
    axes = sorted(
        (stride, extent) for stride, extent in zip(strides, dims, strict=True) if stride > 0 and extent > 1
    )
    if 0 in dims:
        return 0.0
    count = math.prod(extent for _, extent in axes)
    run = 1
    for stride, extent in axes:
        if stride != run:
            break
        run *= extent
    if run == count:
        return float(count * size)
    run_bytes = run * size
    pitch = next((stride for stride, _ in axes if stride >= run), run) * size  # overlapping strides have none
    sectors = math.ceil(run_bytes / SECTOR) * SECTOR
    return count / run * min(max(sectors, run_bytes), max(pitch, run_bytes))


class Arguments:
    """Reads `Inputs` by position. Nothing here fails: what was not recorded is None or empty."""

    __slots__ = ("inputs",)

    def __init__(self, inputs: Inputs | None) -> None:
        self.inputs = inputs or Inputs()

    def __len__(self) -> int:
        return len(self.inputs.dims)

    def tensor(self, index: int) -> Tensor | None:
        """The tensor at a position; None for numbers, lists and what is missing."""
        inputs = self.inputs
        if not 0 <= index < min(len(inputs.dims), len(inputs.types)):
            return None
        dims, dtype = inputs.dims[index], inputs.types[index]
        if not isinstance(dtype, str):
            return None
        return _tensor(dims, dtype, inputs.strides[index] if index < len(inputs.strides) else None)

    def needed(self, *indices: int, rank: int = 0) -> list[Tensor]:
        """The tensors at these positions, of so many dims at least.

        Without one of them nothing is known of the op: a ValueError, which `op_work` answers with no model.
        """
        found = [tensor for index in indices if (tensor := self.tensor(index)) is not None]
        if len(found) < len(indices) or any(len(tensor.dims) < rank for tensor in found):
            raise ValueError("an op's tensors were not recorded")
        return found

    def tensors(self) -> list[Tensor]:
        """Every tensor argument with at least one dimension, in order."""
        found = (self.tensor(index) for index in range(len(self)))
        return [tensor for tensor in found if tensor is not None and tensor.dims]

    def tensor_list(self, index: int, default: str = "float") -> list[Tensor]:
        """The tensors of a list argument; its members' types are often not recorded."""
        inputs = self.inputs
        if index >= len(inputs.dims):
            return []
        dims = inputs.dims[index]
        types = inputs.types[index] if index < len(inputs.types) else ""
        strides = inputs.strides[index] if index < len(inputs.strides) else []
        found = []
        for at, extents in enumerate(dims):
            if not isinstance(extents, list):
                return []
            dtype = types[at] if isinstance(types, list) and at < len(types) else default
            steps = strides[at] if at < len(strides) else None
            tensor = _tensor(extents, dtype, steps if isinstance(steps, list) else None)
            if tensor is not None:
                found.append(tensor)
        return found

    def is_list(self, index: int) -> bool:
        types = self.inputs.types
        return index < len(types) and (types[index] == "TensorList" or isinstance(types[index], list))

    def text(self, index: int) -> str:
        concrete = self.inputs.concrete
        return str(concrete[index]) if 0 <= index < len(concrete) else ""

    def number(self, index: int) -> float | None:
        try:
            return float(self.text(index))
        except ValueError:
            return None

    def flag(self, index: int) -> bool | None:
        return {"true": True, "false": False}.get(self.text(index).lower())

    def numbers(self, index: int) -> list[int] | None:
        """A list such as "[2, 2]"."""
        text = self.text(index).strip()
        if not (text.startswith("[") and text.endswith("]")):
            return None
        try:
            return [int(part) for part in text[1:-1].split(",") if part.strip()]
        except ValueError:
            return None

    def flags(self, index: int) -> list[bool] | None:
        text = self.text(index).strip().lower()
        if not (text.startswith("[") and text.endswith("]")):
            return None
        return [part.strip() in ("true", "1") for part in text[1:-1].split(",")]


def _tensor(dims: Sequence[object], dtype: str, strides: Sequence[object] | None) -> Tensor | None:
    size = item_size(dtype)
    extents = tuple(extent for extent in dims if isinstance(extent, int))
    if size is None or len(extents) != len(dims) or any(extent < 0 for extent in extents):
        return None
    steps = tuple(step for step in strides if isinstance(step, int)) if strides else None
    if steps is not None and len(steps) != len(extents):
        steps = None
    return Tensor(extents, dtype, steps, size)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape several shapes broadcast to; the larger extent where they do not fit."""
    rank = max((len(shape) for shape in shapes), default=0)
    extents = []
    for axis in range(rank):
        sizes = [shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0]
        extents.append(0 if 0 in sizes else max(sizes))
    return tuple(extents)


def promoted(tensors: Sequence[Tensor]) -> str:
    """The type pointwise arithmetic gives. Numbers and 0-dim tensors promote only across categories."""
    shaped = [tensor for tensor in tensors if tensor.dims] or list(tensors)
    floats = [tensor.dtype for tensor in shaped if is_floating(tensor.dtype)]
    if floats:
        widest = max(floats, key=lambda dtype: item_size(dtype) or 0)
        if {"c10::Half", "c10::BFloat16"} <= set(floats) and item_size(widest) == HALF_BYTES:
            return "float"
        return widest
    if any(is_floating(tensor.dtype) for tensor in tensors):
        return "float"
    return max((tensor.dtype for tensor in shaped), key=lambda dtype: item_size(dtype) or 0, default="float")


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
