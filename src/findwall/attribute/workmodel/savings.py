"""Convolutions that do fewer products than the direct method: Winograd's and Fourier's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from findwall.model.intervals import I64

# Times fewer products: exact for Winograd with 4 x 4 tiles of 3 x 3 taps, and about what a Fourier
# transform of small images saves.
_PRODUCTS_SAVED = 4.0
_TRANSFORM_WORDS = ("winograd", "wino_", "fft2d", "fft1d", "cgemm")


def savings(names: list[str], name: NDArray[np.int32], op: I64) -> NDArray[np.float64]:
    """How many times fewer products each row does, at most.

    The transform and the product may be kernels of their own, so one such kernel speaks for its op.
    """
    distinct, inverse = np.unique(name, return_inverse=True)
    saved = [
        _PRODUCTS_SAVED if any(word in names[int(at)].lower() for word in _TRANSFORM_WORDS) else 1.0
        for at in distinct
    ]
    factor = np.array(saved, np.float64)[inverse] if len(distinct) else np.ones(0)
    if not (factor > 1).any():
        return factor
    _, groups = np.unique(op, return_inverse=True)
    best = np.ones(int(groups.max()) + 1)
    np.maximum.at(best, groups, factor)
    return np.where(op >= 0, best[groups], factor)
