"""How much of a large matrix is zero: of those that a job holds and does not train, looked at once.

A few numbers of each tell, drawn at places that the job's own random numbers have nothing to do with: so the
look takes about as long for any size. What of them is given to products, and stays as it is, the graph tells.
"""

from __future__ import annotations

from typing import Any

from findwall.agent.allocations.live_tensors import is_plain, objects_of
from findwall.agent.tracing.value_counts import tell
from findwall.model.dataflow import LOOK, ZEROS

LEAST_SIDE = 256  # of a matrix: products with smaller ones take next to nothing
MOST_MATRICES = 32  # that are looked at, the largest first
DRAWN = 1 << 18  # numbers of each: of one in three thousand that is not zero, some ninety are met


def tell_zeros(torch: Any) -> None:
    matrices = [one for one in objects_of(torch.Tensor) if is_plain(torch, one) and _may_be_sparse(one)]
    matrices = sorted(matrices, key=lambda one: -one.numel())[:MOST_MATRICES]
    if not matrices or any(one.is_cuda and torch.cuda.is_current_stream_capturing() for one in matrices):
        return
    with torch.autograd.profiler.record_function(LOOK):
        counts = [_counted(torch, one) for one in matrices]
    for one, (some, drawn) in zip(matrices, counts, strict=True):
        tell(torch, f"{ZEROS}{some}/{drawn}", [one])


def _may_be_sparse(one: Any) -> bool:
    held = one.is_floating_point() and one.dim() == 2 and not one.requires_grad
    return held and min(one.shape) >= LEAST_SIDE and (one.is_contiguous() or one.mT.is_contiguous())


def _counted(torch: Any, one: Any) -> tuple[int, int]:
    """Numbers that are not zero, of those that were drawn."""
    import numpy as np

    numbers = (one if one.is_contiguous() else one.mT).detach().reshape(-1)
    if len(numbers) > DRAWN:
        places = np.random.default_rng(0).integers(0, len(numbers), DRAWN)
        numbers = numbers[torch.from_numpy(places).to(numbers.device)]
    return int((numbers != 0).sum()), len(numbers)
