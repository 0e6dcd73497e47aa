"""Send fewer, larger messages.

What it does:
Each collective costs tens of microseconds before the first byte moves. Many small ones (a reduction
for every parameter, a gather for every layer norm) become few when gradients are put into buckets
(DDP's `bucket_cap_mb`), parameters are wrapped in larger FSDP units, and scalars are packed into
one tensor.

When it does not help:
Messages are large already: then bandwidth decides.

Risk:
A bucket leaves only when its last gradient is there: too large ones cannot overlap.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from findwall.apply.applying import Effect
from findwall.apply.job_lines import passed
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.facts.collectives import collectives_a_step
from findwall.facts.message_traffic import buckets
from findwall.fixes import Claim, Facts, Figures, Fix, NoUse, Outcome, Use, no_use, spent_ms
from findwall.fixes.communication.communication_refusals import NO_COLLECTIVES
from findwall.model.catalogue import FEWEST_REPEATS
from findwall.patches.editor import Editor
from findwall.units import MIB, format_bytes

MOVES = ("small-collectives", "exposed-collective")
# DistributedDataParallel's own, and four times as much: chosen by hand, not calibrated.
DEFAULT_MB, LARGER_MB = 25, 100
FIRST_BUCKET_BYTES = 1 << 20  # what it sends first, unless told how large its buckets are


def use(facts: Facts) -> Outcome:
    count, spent = collectives_a_step(facts), spent_ms(facts, *MOVES)
    if count < FEWEST_REPEATS:
        return no_use("bucket-collectives/few", collectives=count)
    if spent <= 0:
        return no_use("bucket-collectives/hidden")
    found = buckets(facts)
    if found is None:
        return Use(Claim("bucket-collectives/pack", {"collectives": count, "waits_ms": spent}))
    larger = min(LARGER_MB, math.ceil(found.gradients / MIB))
    figures: Figures = {
        "buckets": found.count,
        "each_bytes": found.median,
        "gradient_bytes": found.gradients,
        "megabytes": larger,
        "made": found.made(larger),
        "waits_ms": spent,
    }
    if found.made(larger) * found.passes >= found.count:
        return NoUse(Claim("bucket-collectives/large", figures))
    return Use(Claim("bucket-collectives/buckets", figures), parameters={"bucket_cap_mb": larger})


def apply(torch: Any, effect: Effect) -> None:
    """DistributedDataParallel gets larger buckets; collectives that the job calls itself need an edit."""
    kind = torch.nn.parallel.DistributedDataParallel
    effect.missed("DistributedDataParallel wraps no model here")
    larger = functools.partial(_larger, effect)
    REGISTRY.wrap("bucket-collectives", kind, "__init__", larger, past_end=APPLIED)


def _larger(effect: Effect, original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)
    megabytes = effect.number or LARGER_MB

    def asked(model: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The job's own arguments, but for the bucket's."""
        bound = signature.bind(model, *args, **kwargs)
        takes, given = passed(original, args, kwargs)
        effect.at("ranks", model, takes=takes, given=given, value=str(megabytes))
        mine = bound.arguments.get("bucket_cap_mb") or DEFAULT_MB
        if mine >= megabytes or bound.arguments.get("bucket_cap_mb_list"):
            effect.missed("the job has chosen its buckets, or they are as large already")
        else:
            bound.arguments["bucket_cap_mb"] = megabytes
        return bound.args[1:], bound.kwargs

    @functools.wraps(original)
    def make(model: Any, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(TypeError):  # the job's own mistake: torch says so
            args, kwargs = asked(model, args, kwargs)
        original(model, *args, **kwargs)
        look(model)

    def see(model: Any) -> None:
        if model.bucket_bytes_cap != megabytes << 20:
            return
        weights = [one for one in model.module.parameters() if one.requires_grad]
        amount = sum(one.numel() * one.element_size() for one in weights)
        if amount <= FIRST_BUCKET_BYTES:
            effect.missed("all gradients fit into one bucket as it is")
            return
        effect.saw(f"buckets of {megabytes} MB for {format_bytes(amount)} of gradients")

    look = effect.safely(see)
    return make


def patch(editor: Editor) -> None:
    for place in editor.places("ranks"):
        trainer = {"transformers": {"ddp_bucket_cap_mb": place.value}}
        editor.set_arguments(place, trainer, bucket_cap_mb=place.value)


FIX = Fix(MOVES, "safe", use, (NO_COLLECTIVES,), apply=apply, patch=patch, reorders=True)
