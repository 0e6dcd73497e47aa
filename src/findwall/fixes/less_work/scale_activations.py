"""Scale the maps of each sample instead of making a weight for it.

What it does:
A style that scales a layer's weight for every sample, as in StyleGAN's modulated convolutions, makes as many
weights as there are samples: each is scaled, squared, summed, scaled again, and convolved with as a group of
one image, and the backward pass does all of that again. A factor of whole channels commutes with the
convolution: those that it reads may be scaled before it, those that it makes behind it, with one weight for
all. The length that a scaled weight is divided by is a product of squares:

    x = F.conv2d(x * style[:, :, None, None], weight, padding=1)
    lengths = style.square() @ weight.square().sum((2, 3)).t()          # of each sample's weight
    x = x * (lengths + eps).rsqrt()[:, :, None, None]

When it does not help:
The factors differ from place to place of the window, or something else reads the weights of the samples. With
one sample, or maps that are far larger than the weights of all samples, both ways cost the same.

Risk:
Results round differently: in 16 bits the maps are scaled, which may grow too large for float16 where styles
are. Divide them by their largest, as the lengths make up for it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from findwall.facts.facts import causes_of, kernels_ns
from findwall.facts.likely_times import in_few_kernels, layout_now, pass_ns
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    lacks_rates,
    lines,
    no_ceilings,
    no_use,
    of_class,
    on_cores,
    rows_of,
    time_of,
    to_floor,
)
from findwall.model.catalogue import MATRIX_CLASSES
from findwall.model.dataflow import ScaledWeight
from findwall.model.intervals import I64
from findwall.model.machine import MATH_TYPES
from findwall.model.probes import Draw, Rewrite
from findwall.replay.change import Change
from findwall.replay.curves import curves
from findwall.units import NS_PER_S
from findwall.work.op_arguments import item_size
from findwall.work.work_facts import WorkFacts, moving_ns

MOVES = ("unfused-pointwise", "slow-kernels", "layout-copies", "dtype-casts")
LEAST = 1e-8  # that a squared length is
# Kernels that scaling launches: forward one for each factor, and for lengths a square, a sum, a product, an
# addition and a root; backward for each factor two products and a sum, and for lengths twice as many.
SCALES, LENGTHS, SCALES_BACK = 1, 5, 3
# Passes over maps: to scale them, they are read and written; backward the gradient is scaled, multiplied with
# the maps, and that summed up.
PASSES, PASSES_BACK = 2, 6
WAYS = ("forward", "backward")


def plain(torch: Any, x: Any, weight: Any, style: Any, out: Any, lengths: bool, how: str) -> Any:
    """As it is written today: `style` for channels that it reads, `out` for those that it makes."""
    samples, over = len(x), tuple(range(2, weight.dim() + 1))
    window = (1,) * (weight.dim() - 2)
    scaled = weight.unsqueeze(0)
    if style is not None:
        scaled = scaled * style.reshape(samples, 1, -1, *window)
    if lengths:
        out = (scaled.square().sum(over) + LEAST).rsqrt()
    if out is not None:
        scaled = scaled * out.reshape(samples, -1, 1, *window)
    scaled = scaled.expand(samples, *weight.shape).reshape(-1, *weight.shape[1:]).to(x.dtype)
    image = x.reshape(1, -1, *x.shape[2:])
    found = _convolution(torch, x)(image, scaled, None, *_numbers(how), samples)
    return found.reshape(samples, -1, *found.shape[2:])


def cheaper(torch: Any, x: Any, weight: Any, style: Any, out: Any, lengths: bool, how: str) -> Any:
    """With one weight for all samples."""
    window = (1,) * (weight.dim() - 2)
    if lengths:
        squares = weight.square().flatten(2).sum(2)
        each = squares.sum(1).expand(len(x), -1) if style is None else style.square() @ squares.t()
        out = (each + LEAST).rsqrt()
    if style is not None:
        x = x * style.to(x.dtype).reshape(*style.shape, *window)
    found = _convolution(torch, x)(x, weight.to(x.dtype), None, *_numbers(how))
    return found if out is None else found * out.to(x.dtype).reshape(*out.shape, *window)


def _convolution(torch: Any, x: Any) -> Any:
    return getattr(torch.nn.functional, f"conv{x.dim() - 2}d")


def _numbers(how: str) -> list[list[int]]:
    """Stride, padding and dilation: "1,1;1,1;1,1"."""
    return [[int(one) for one in part.split(",")] for part in how.split(";")]


def use(facts: Facts) -> Outcome:
    if facts.scaled is None:
        return cannot_tell("scale-activations/not-seen")
    if not facts.scaled:
        return no_use("scale-activations/none")
    if lacks_rates(facts):
        return no_ceilings(facts)
    found = [one for one in facts.scaled if on_cores(facts) or _is_less(facts, one)]
    if not found:
        return no_use("scale-activations/as-good")
    every = np.unique(np.concatenate([one.atoms for one in found]))
    longest = max(found, key=lambda one: time_of(facts, one.atoms))
    claim = Claim(
        "scale-activations/maps",
        {
            "spent_ms": time_of(facts, every),
            "samples": longest.samples,
            "dims": len(longest.maps),
            "reads": longest.reads,
            "makes": longest.makes,
            "lengths": longest.lengths,
        },
        {"shapes": f"[{'×'.join(map(str, longest.weight))}]"},
        lines(*dict.fromkeys(one.place for one in found)),
    )
    return Use(
        claim,
        to_floor(facts, every, np.zeros(len(every))),
        causes_of(facts, every, MOVES),
        likely=lambda made: _likely(facts, found),
        rewrites=_rewrites(facts, found),
    )


# -- what the other form takes -----------------------------------------------------------------------------


def _is_less(facts: Facts, one: ScaledWeight) -> bool:
    return sum(_takes(facts, one)) * _times(facts, one) < kernels_ns(facts, one.atoms)


def _takes(facts: Facts, one: ScaledWeight) -> tuple[float, float]:
    """ns of the forward and of the backward pass: convolutions, and passes over maps and over one weight."""
    size, base = item_size(one.dtype) or 0, item_size(one.base) or 0
    maps = one.samples * one.weight[1] * math.prod(one.maps) * size
    results = one.samples * one.weight[0] * one.results * size
    weight = math.prod(one.weight)
    scaled = [nbytes for nbytes, wanted in ((maps, one.reads), (results, one.makes)) if wanted]
    turned = (maps + results) * 2 if layout_now(facts) == "nchw" and not on_cores(facts) else 0
    passes = [PASSES * nbytes for nbytes in scaled] + [turned, 2 * weight * (base + size)]
    back = [PASSES_BACK * nbytes for nbytes in scaled] + [2 * turned, 4 * weight * (base + size)]
    flops = 2.0 * one.samples * one.results * weight
    multiplying = [_convolving_ns(facts, one, flops, maps + results + weight * size, way) for way in WAYS]
    ahead = multiplying[0] + sum(pass_ns(facts, nbytes) for nbytes in passes if nbytes)
    behind = 2 * multiplying[1] + sum(pass_ns(facts, nbytes) for nbytes in back if nbytes)
    return ahead, behind if len(one.backward) else 0.0


def _convolving_ns(facts: Facts, one: ScaledWeight, flops: float, nbytes: float, way: str) -> float:
    math_type = _math(facts, one.forward)
    floor = max(flops / facts.ceilings.flops.get(math_type, np.inf) * NS_PER_S, moving_ns(facts, nbytes), 1.0)
    kind = "wide" if max(one.weight[2:]) > 1 else "1x1"
    name = f"conv/{math_type}/{layout_now(facts)}/{way}/{kind}"
    return max(float(curves().likely_ns(name, np.array([floor]))[0]), floor)


def _math(facts: WorkFacts, atoms: I64) -> str:
    index = facts.kernels.math_index[facts.atoms.index[atoms]]
    known = index[(index >= 0) & of_class(facts, *MATRIX_CLASSES)[atoms]]
    return MATH_TYPES[int(np.bincount(known).argmax())] if len(known) else "fp32"


def _likely(facts: Facts, found: list[ScaledWeight]) -> Change:
    """As many kernels as that, and no more than there are today."""
    kernels = []
    for one in found:
        times, (ahead, behind) = _times(facts, one), _takes(facts, one)
        factors = one.reads + one.makes
        count = 2 + SCALES * factors + LENGTHS * one.lengths
        back = 3 + SCALES_BACK * factors + 2 * LENGTHS * one.lengths
        kernels.append((rows_of(facts, one.forward), count * times, ahead * times))
        kernels.append((rows_of(facts, one.backward), back * times, behind * times))
    return in_few_kernels(kernels)


def _times(facts: WorkFacts, one: ScaledWeight) -> int:
    """In how many of the traced steps it was seen."""
    rows = facts.kernels.op[facts.atoms.index[one.forward]]
    step = np.searchsorted(facts.steps.host, facts.timeline.events.start[rows[rows >= 0]], side="right")
    return max(len(np.unique(step)), 1)


def _rewrites(facts: WorkFacts, found: list[ScaledWeight]) -> tuple[Rewrite, ...]:
    """One for each set of shapes."""
    alike: dict[tuple[object, ...], list[ScaledWeight]] = {}
    for one in found:
        key = (one.samples, one.weight, one.maps, one.dtype, one.base, one.reads, one.makes, one.lengths)
        alike.setdefault((*key, one.how, len(one.backward) > 0), []).append(one)
    return tuple(_rewrite(facts, mine) for mine in alike.values())


def _rewrite(facts: WorkFacts, mine: list[ScaledWeight]) -> Rewrite:
    one, trains = mine[0], len(mine[0].backward) > 0
    makes, reads = one.weight[:2]
    style, out = (
        Draw((one.samples, channels), one.base, has_gradient=trains) if scaled else None
        for channels, scaled in ((reads, one.reads), (makes, one.makes and not one.lengths))
    )
    return Rewrite(
        "scale-activations",
        (
            Draw((one.samples, reads, *one.maps), one.dtype, has_gradient=trains),
            Draw(one.weight, one.base, has_gradient=trains),
            style,
            out,
            one.lengths,
            ";".join(",".join(map(str, part)) for part in one.how),
        ),
        np.unique(rows_of(facts, np.concatenate([each.atoms for each in mine]))),
        sum(_times(facts, each) for each in mine),
        trains,
    )


FIX = Fix(MOVES, "safe", use, reorders=True, removes=True)
