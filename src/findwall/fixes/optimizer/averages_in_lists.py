"""Update averages of the weights with a few ops on lists of tensors: `multi_avg_fn`, `torch._foreach_lerp_`.

What it does:
An average of the weights (EMA, SWA) that walks from tensor to tensor launches a few kernels for each of them,
thousands per step, and where its decay comes from a counter on the CPU also a copy that the host waits for.
With lists each op is launched a few times for all of them:

    AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))    # torch.optim.swa_utils
    torch._foreach_lerp_(averages, weights, 1 - decay)                # written by oneself

Averaged every n steps, with the decay to the n-th power, it costs the n-th part.

When it does not help:
The tensors are few and large: then their bytes count, which lists do not save. A CUDA graph that holds the
whole step holds the average too.

Risk:
Results differ in the last bits at most. Integer buffers (a batch norm's counter) are copied, not averaged:
keep them out of the lists.
"""

from __future__ import annotations

from findwall.facts.beside_the_model import averages
from findwall.facts.best_changes import in_lists, lists_at_best
from findwall.facts.waits import idle_in_front
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, gone, no_use, of_class, step_ms
from findwall.fixes.refusals import ON_CORES, REPLAYED
from findwall.model.catalogue import MENTION_SHARE
from findwall.replay.change import Change


def use(facts: Facts) -> Outcome:
    atoms = averages(facts)
    copied = of_class(facts, "memcpy")[atoms]
    kernels = atoms[~copied]
    if len(kernels) == 0:
        return no_use("averages-in-lists/none")
    waited = idle_in_front(facts, "launch-bound", atoms)
    if waited <= MENTION_SHARE * step_ms(facts):
        return no_use("averages-in-lists/hidden")
    dropped = gone(facts, atoms[copied])
    figures = {
        "kernels": len(kernels) / facts.steps.count,
        "copies": float(copied.sum()) / facts.steps.count,
        "waits_ms": waited,
    }
    return Use(
        Claim("averages-in-lists/foreach", figures),
        lists_at_best(facts, kernels) + dropped,
        likely=lambda made: Change() if "cuda-graphs" in made else in_lists(facts, kernels) + dropped,
    )


FIX = Fix(
    ("launch-bound",),
    "needs-review",
    use,
    (
        ON_CORES,
        REPLAYED,
    ),
)
