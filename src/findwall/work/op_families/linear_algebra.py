"""Factorisations and solves: LAPACK's counts of their arithmetic, and every matrix through memory once.

Most of them go from column to column, each of which needs the one before: small matrices stay far under what
the device can do, whoever writes the kernel. What is counted here is the least there is to do.
"""

from __future__ import annotations

import math

from findwall.work.op_arguments import Arguments, Tensor, Work
from findwall.work.op_families import Family

# Of a complex number: one multiplication and one addition are four of each.
_COMPLEX = 4.0
# FLOPs of a square matrix of n, n³ times.
_SQUARE = {
    **dict.fromkeys(("linalg_cholesky_ex", "linalg_cholesky", "cholesky"), 1 / 3),
    **dict.fromkeys(
        ("linalg_lu_factor_ex", "linalg_lu", "lu_unpack", "_linalg_det", "_linalg_slogdet"), 2 / 3
    ),
    "cholesky_inverse": 2 / 3,  # of a factor that is there already
    **dict.fromkeys(("linalg_inv_ex", "linalg_inv"), 2.0),
    # To tridiagonal form; vectors are turned back.
    **dict.fromkeys(("_linalg_eigh", "linalg_eigh"), 4 / 3 + 2.0),
    **dict.fromkeys(("linalg_eig", "_linalg_eigvals"), 10.0),
    "linalg_matrix_exp": 2.0,
}
# The same of an m × n matrix, m ≥ n: m·n² times, less n³ times.
_TALL = {
    **dict.fromkeys(("linalg_qr", "geqrf", "orgqr", "linalg_householder_product"), (2.0, 2 / 3)),
    **dict.fromkeys(("_linalg_svd", "linalg_svd", "linalg_svdvals"), (4.0, 4 / 3)),
    "linalg_lstsq": (2.0, 2 / 3),
}
# A matrix and right sides, by position: FLOPs of the matrix, n³ times, and of each right side, n² times.
_SOLVE = {
    "linalg_solve_triangular": (0, 1, 0.0, 1.0),
    "triangular_solve": (1, 0, 0.0, 1.0),
    "_linalg_solve_ex": (0, 1, 2 / 3, 2.0),
    "linalg_solve": (0, 1, 2 / 3, 2.0),
    "linalg_lu_solve": (0, 2, 0.0, 2.0),
    "cholesky_solve": (1, 0, 0.0, 2.0),
}


def _work(matrix: Tensor, flops: float, moved: float) -> Work:
    is_complex = "complex" in matrix.dtype.lower()
    return Work(
        flops=flops * (_COMPLEX if is_complex else 1.0),
        read_bytes=moved,
        write_bytes=moved,
        math="fp64" if "double" in matrix.dtype.lower() else "fp32",
    )


def _square(op: str, arguments: Arguments) -> Work | None:
    (matrix,) = arguments.needed(0, rank=2)
    return _work(matrix, _SQUARE[op] * matrix.elements * matrix.dims[-1], matrix.nbytes)


def _tall(op: str, arguments: Arguments) -> Work | None:
    (matrix,) = arguments.needed(0, rank=2)
    long, short = max(matrix.dims[-2:]), min(matrix.dims[-2:])
    often, less = _TALL[op]
    each = often * long * short**2 - less * short**3
    return _work(matrix, math.prod(matrix.dims[:-2]) * each, matrix.nbytes)


def _solve(op: str, arguments: Arguments) -> Work | None:
    at, right_at, factors, sides = _SOLVE[op]
    matrix, right = arguments.needed(at, right_at, rank=2)
    n = matrix.dims[-1]
    flops = factors * matrix.elements * n + sides * right.elements * n
    return _work(matrix, flops, matrix.nbytes / 2 + right.nbytes)


FAMILY = Family(
    {**dict.fromkeys(_SQUARE, _square), **dict.fromkeys(_TALL, _tall), **dict.fromkeys(_SOLVE, _solve)}
)
