"""What an op must do: FLOPs and bytes, and which of its kernels does which part of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel's share where an op launches kernels that do different things.

    A kernel belongs to the first part one of whose words is in its lower-case name.
    """

    words: tuple[str, ...]
    flops: float = 0.0
    nbytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
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
    workspace: float = 0.0  # bytes of one result in fp32: what a split-K reduction reads a slice of
    layouts: tuple[float, ...] = ()  # bytes of the tensors a library may re-lay out first, in its order
    results: tuple[float, ...] = ()  # bytes of the results it may lay back
    cast: bool = False  # a copy that changes the type
    per_parameter: bool = False  # figures are of one parameter: its lists were not recorded
    type_from_kernel: bool = False  # figures assume 4 bytes an element; the kernel's name may say otherwise

    @property
    def nbytes(self) -> float:
        return self.read_bytes + self.write_bytes
