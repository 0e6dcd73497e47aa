"""Linear layers padded inside, to show what padding them for good would give.

The operands get columns and rows of zeros, the product is the aligned one, and what is returned is the part
that was asked for: the same numbers, within rounding, and the same gradients. Weights and activations are
copied at every call for that, which an edit does not do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from findwall.apply.applying import STAND_IN, Effect, is_compiling_of
from findwall.apply.registry import APPLIED, REGISTRY, Call

LEAST_WEIGHTS = 1 << 16  # of a layer: a smaller one is over before it matters. Chosen by hand.
MOST_LAYERS = 4096  # that are told apart
SHAPES_NAMED = 3  # in one sentence
ALIGNED_BYTES = 16  # what tensor cores load at once
COSTS = "every call copies its operands for that, so the edit gives more"

Padded = Callable[[int], int]  # the size to pad to


class PaddedLinear:
    """Stands in for `torch.nn.functional.linear`, which `nn.Linear` calls as well."""

    def __init__(self, torch: Any, padded: Padded, kind: str = "cuda") -> None:
        self._torch, self._home, self._kind = torch, torch.nn.functional, kind
        self._narrow = (torch.float16, torch.bfloat16)
        self._shapes: dict[tuple[int, ...], None] = {}  # what was padded to what
        self._layers: set[int] = set()  # weights, of what is not compiled
        made = functools.partial(self._made, padded)
        self._put = REGISTRY.wrap("padding", self._home, "linear", made, past_end=APPLIED)

    def remove(self) -> None:
        self._put.undo()

    def told(self) -> str:
        """Nothing, where no layer was padded."""
        if not self._shapes:
            return ""
        shapes = [f"{n}×{k} as {to_n}×{to_k}" for n, k, to_n, to_k in self._shapes]
        more = f" and {len(shapes) - SHAPES_NAMED} more shapes" if len(shapes) > SHAPES_NAMED else ""
        count = len(self._layers)
        layers = f"{count} linear layer{'s' if count > 1 else ''} multiplied with padding"
        how = layers if count else "linear layers were compiled with padding"
        return f"{STAND_IN}: {how} ({', '.join(shapes[:SHAPES_NAMED])}{more}); {COSTS}"

    def _made(self, padded: Padded, original: Call) -> Call:
        torch = self._torch
        pad, compiling = self._home.pad, is_compiling_of(torch)
        number_format, sizes, note = self._format(), _sizes(padded), self._note
        traced = _at_trace(note)

        @functools.wraps(original)
        def linear(input: Any, weight: Any, bias: Any = None) -> Any:
            dtype = number_format(input, weight)
            if dtype is None:
                return original(input, weight, bias)
            n, k = weight.shape
            to_n, to_k = sizes(n), sizes(k)
            if (to_n, to_k) == (n, k):
                return original(input, weight, bias)
            if compiling():
                traced(n, k, to_n, to_k)
            else:
                note(id(weight), n, k, to_n, to_k)
            x = input.to(dtype)
            if to_k != k:
                x = pad(x, (0, to_k - k))
            w = pad(weight.to(dtype), (0, to_k - k, 0, to_n - n))
            if bias is not None and to_n != n:
                bias = pad(bias.to(dtype), (0, to_n - n))
            product = original(x, w, bias)
            # As it always was, so that the job can go on with `view`.
            return product[..., :n].contiguous() if to_n != n else product

        return linear

    def _note(self, layer: int | None, *sizes: int) -> None:
        if layer is not None and len(self._layers) < MOST_LAYERS:
            self._layers.add(layer)
        self._shapes.setdefault(sizes)

    def _format(self) -> Callable[[Any, Any], Any]:
        """The number format that a product would read; None where odd sizes cost nothing in it."""
        torch, kind, narrow = self._torch, self._kind, self._narrow
        plain = (torch.Tensor, torch.nn.Parameter)

        def number_format(x: Any, weight: Any) -> Any:
            if type(x) not in plain or type(weight) not in plain:
                return None
            if x.device.type != kind or weight.dim() != 2 or weight.numel() < LEAST_WEIGHTS:
                return None
            dtype = x.dtype
            if torch.is_autocast_enabled(kind) and dtype.is_floating_point:
                dtype = torch.get_autocast_dtype(kind)
            elif weight.dtype != dtype:
                return None
            return dtype if dtype in narrow else None

        return number_format


def _sizes(padded: Padded) -> Padded:
    def sizes(extent: int) -> int:
        return extent if extent == 1 or extent % (ALIGNED_BYTES // 2) == 0 else padded(extent)

    return sizes


def _at_trace(note: Callable[..., None]) -> Callable[..., int]:
    """The compiler calls this itself while it traces, takes the result for a constant, and has nothing of it
    in the graph."""

    def traced(*sizes: int) -> int:
        note(None, *sizes)
        return 0

    traced._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return traced


def pad_linear(torch: Any, effect: Effect, padded: Padded) -> None:
    """The layers that were padded, and to what, are the proof."""
    if not torch.cuda.is_available():
        effect.cannot("there is no GPU here, and on CPU cores odd sizes cost next to nothing")
        return
    if not hasattr(torch, "get_autocast_dtype"):
        effect.cannot("it needs torch 2.4 or newer")
        return
    effect.missed("no large 16-bit linear layer with an odd size was called; other products are not padded")
    effect.at_end(PaddedLinear(torch, padded).told)
