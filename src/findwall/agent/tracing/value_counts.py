"""What no op says of the values it is given: told beside the ops that are observed, as names of ranges.

Targets that a loss passes over, tokens that only fill a batch up, whether the same tokens come again, and how
much of an attention its mask lets through. Each is looked at right before the op that is called with it, in a
range that is findwall's own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from findwall.agent.tracing.observer import BY, OBSERVER
from findwall.apply.registry import REGISTRY, Call, Put
from findwall.model.dataflow import FILLED, HELD, LOOK, MASK, MASK_BLOCK, TARGETS

SAMPLES_AND_PLACES = 2  # dimensions
LOSSES = ("cross_entropy", "nll_loss")
IGNORED = -100  # by these, unless they are told another
ATTENTION = "scaled_dot_product_attention"
GIVEN_IT = ("query", "key", "value", "attn_mask")  # it has no signature that Python knows
FEWEST_TOKENS, MOST_TOKENS = 16, 1 << 20  # fewer may be the same by chance, as a label is
DIGITS = 16
MOST_MASKS = 8  # that are looked at, of all steps that are observed
MOST_POSITIONS = 1 << 28  # of a mask
AT_ONCE = 1 << 24  # positions that are counted together: that takes 8 bytes each
LEAST_ADDED = (
    -1e8
)  # what adds less leaves a position out, or less than half of the most that can be taken away

Look = Callable[[Any, dict[str, Any]], None]


def watch_values(torch: Any) -> list[Put]:
    """From now on, until all that is handed back is undone."""
    looks: dict[str, Look] = {**dict.fromkeys(LOSSES, _count_targets), "embedding": _look_at_tokens}
    looks[ATTENTION] = Masks().count
    return [_watch_calls(torch, name, look) for name, look in looks.items()]


def _watch_calls(torch: Any, name: str, look: Look) -> Put:
    def make(original: Call) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if OBSERVER.is_busy:
                with contextlib.suppress(Exception):  # inside the job's own call: it is not told, then
                    look(torch, _by_name(original, args, kwargs))
            return original(*args, **kwargs)

        return call

    return REGISTRY.wrap(BY, torch.nn.functional, name, make)


def _by_name(original: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if inspect.isbuiltin(original):
        return {**dict(zip(GIVEN_IT, args, strict=False)), **kwargs}
    return inspect.signature(original).bind(*args, **kwargs).arguments


def tell(torch: Any, name: str, tensors: Iterable[Any]) -> None:
    with torch.autograd.profiler.record_function(name):
        for tensor in tensors:
            tensor.detach()


def _count_targets(torch: Any, given: dict[str, Any]) -> None:
    target, ignored = given["target"], given.get("ignore_index", IGNORED)
    if target.is_floating_point() or not target.numel():
        return
    with torch.autograd.profiler.record_function(LOOK):
        kept = int((target.detach() != ignored).sum())
    tell(torch, f"{TARGETS}{kept}/{target.numel()}", [])


def _look_at_tokens(torch: Any, given: dict[str, Any]) -> None:
    tokens = given["input"]
    if FEWEST_TOKENS <= tokens.numel() <= MOST_TOKENS:
        with torch.autograd.profiler.record_function(LOOK):
            held = tokens.detach().cpu().contiguous().numpy().tobytes()
        tell(torch, f"{HELD}{hashlib.sha256(held).hexdigest()[:DIGITS]}", [tokens])
    _count_filled(torch, given)


def _count_filled(torch: Any, given: dict[str, Any]) -> None:
    """Samples one below the other, all with the same token at their end: how far any of them goes."""
    tokens = given["input"]
    if tokens.dim() != SAMPLES_AND_PLACES or tokens.shape[0] < SAMPLES_AND_PLACES:
        return
    with torch.autograd.profiler.record_function(LOOK):
        tokens = tokens.detach()
        used = (tokens != tokens[0, -1]).any(0).nonzero()
        until = int(used[-1]) + 1 if len(used) else 0
    if 0 < until < tokens.shape[1]:
        tell(torch, f"{FILLED}{until}/{tokens.shape[1]}", [])


class Masks:
    """Masks of attention: how many positions each lets through, and how many blocks of positions that have
    any. One that many layers are given is looked at once, as long as its memory is the same and unchanged."""

    def __init__(self) -> None:
        self._told: dict[tuple[Any, ...], tuple[Any, str]] = {}
        self._looks = 0

    def count(self, torch: Any, given: dict[str, Any]) -> None:
        mask = given.get("attn_mask")
        if not isinstance(mask, torch.Tensor) or mask.dim() < 2:
            return
        with torch.autograd.profiler.record_function(LOOK):
            found = self._counted(torch, once_each(mask.detach()))
        if found:
            tell(torch, f"{MASK}{found}", [])

    def _counted(self, torch: Any, mask: Any) -> str:
        from torch.multiprocessing.reductions import StorageWeakRef

        memory = StorageWeakRef(mask.untyped_storage())  # it keeps no memory, and its number for itself
        version = -1 if mask.is_inference() else mask._version
        known = (memory.cdata, version, mask.storage_offset(), tuple(mask.shape), mask.stride())
        if known in self._told and not self._told[known][0].expired():
            return self._told[known][1]
        if self._looks >= MOST_MASKS or not can_count(torch, mask):
            return ""
        self._looks += 1
        self._told[known] = memory, counted(torch, mask)
        return self._told[known][1]


def can_count(torch: Any, mask: Any) -> bool:
    """Whether there is more than one block to tell apart, not too many, and nothing that a look disturbs."""
    queries, keys = mask.shape[-2:]
    if max(queries, keys) <= MASK_BLOCK or mask.numel() > MOST_POSITIONS:
        return False
    return not (mask.is_cuda and torch.cuda.is_current_stream_capturing())


def counted(torch: Any, mask: Any) -> str:
    """Positions that it lets through, of all; blocks with any of them, of all. Read from the device once."""
    through, blocks, all_blocks = 0, 0, 0
    for part in _parts(mask.reshape(-1, *mask.shape[-2:])):
        let = part if part.dtype == torch.bool else part > _least(torch, part.dtype)
        more = [side for size in (let.shape[-1], let.shape[-2]) for side in (0, -size % MASK_BLOCK)]
        let = torch.nn.functional.pad(let, more)
        in_blocks = let.view(len(let), -1, MASK_BLOCK, let.shape[-1] // MASK_BLOCK, MASK_BLOCK).sum((2, 4))
        through, blocks = through + in_blocks.sum(), blocks + (in_blocks > 0).sum()
        all_blocks += in_blocks.numel()
    both = torch.stack([through, blocks]).cpu()
    return f"{int(both[0])}/{mask.numel()} {int(both[1])}/{all_blocks}"


def _least(torch: Any, dtype: Any) -> float:
    return max(float(torch.finfo(dtype).min) / 2, LEAST_ADDED)


def _parts(mask: Any) -> Iterator[Any]:
    """Whole blocks of rows, of a few samples or of one."""
    _, queries, keys = mask.shape
    samples = max(AT_ONCE // (queries * keys), 1)
    rows = max(AT_ONCE // (samples * keys * MASK_BLOCK), 1) * MASK_BLOCK
    for some in mask.split(samples):
        yield from some.split(rows, 1)


def once_each(mask: Any) -> Any:
    """Without what an expanded dimension repeats."""
    for at, stride in enumerate(mask.stride()):
        if stride == 0 and mask.shape[at] > 1:
            mask = mask.narrow(at, 0, 1)
    return mask
