"""Convolutions that do fewer products than the direct method: Winograd's and Fourier's."""

from __future__ import annotations

import numpy as np

from findwall.model.intervals import F64, I64

# Times fewer products: exact for Winograd with 4 x 4 tiles of 3 x 3 taps, and about what a Fourier
# transform of small images saves.
_PRODUCTS_SAVED = 4.0
_TRANSFORM_WORDS = ("winograd", "wino_", "fft2d", "fft1d", "cgemm")


def products_saved(name: str) -> float:
    """How many times fewer products a kernel of such a name does, at most."""
    return _PRODUCTS_SAVED if any(word in name.lower() for word in _TRANSFORM_WORDS) else 1.0


def savings(factor: F64, op: I64) -> F64:
    """The same for each row: the transform and the product may be kernels of their own, so one such kernel
    speaks for its op."""
    if not (factor > 1).any():
        return factor
    _, groups = np.unique(op, return_inverse=True)
    best = np.ones(int(groups.max()) + 1)
    np.maximum.at(best, groups, factor)
    return np.where(op >= 0, best[groups], factor)
