"""What names give away, as tables: the class of a kernel, the class of an op, the pipe and the format.

Names that a compiler or a multi-tensor launcher put together are read word by word in `classes.py` instead.
"""

from __future__ import annotations

from findwall.structure.names.formats import FORMATS
from findwall.structure.names.matrix import ATTENTION, CONVOLUTIONS, PRODUCTS, RECURRENCES
from findwall.structure.names.movement import (
    BOOKKEEPING,
    COLLECTIVES,
    COPIES,
    EMBEDDINGS,
    GATHERS,
    SELECTIONS,
    SORTS,
)
from findwall.structure.names.ops import OPS
from findwall.structure.names.pipes import TENSOR_CORES
from findwall.structure.names.table import NameTable
from findwall.structure.names.vector import (
    ELEMENTWISE,
    LAUNCHERS,
    NORMS,
    OPTIMIZERS,
    REDUCTIONS,
    ROTARY,
    SOFTMAX,
)

__all__ = ["COLLECTIVE_KERNELS", "FORMATS", "KERNELS", "OPS", "RECURRENT_KERNELS", "TENSOR_CORES"]

# The rank of the groups. A layout kernel inside a library names the library too, and an attention kernel is
# full of the word gemm: the narrower meaning comes first.
KERNELS: NameTable[str] = NameTable(
    *LAUNCHERS,
    *RECURRENCES,
    *COLLECTIVES,
    *COPIES,
    *BOOKKEEPING,
    *ROTARY,
    *EMBEDDINGS,
    *SOFTMAX,
    *OPTIMIZERS,
    *ATTENTION,
    *NORMS,
    *CONVOLUTIONS,
    *PRODUCTS,
    *SELECTIONS,
    *GATHERS,
    *SORTS,
    *REDUCTIONS,
    *ELEMENTWISE,
)
# What a kernel's name alone says of communication, whatever else it says.
COLLECTIVE_KERNELS: NameTable[str] = NameTable(*COLLECTIVES)
RECURRENT_KERNELS: NameTable[str] = NameTable(*RECURRENCES)
