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

from findwall.attribute.beside_the_model import averages
from findwall.attribute.facts import Facts, of_class
from findwall.attribute.figures import step_ms
from findwall.attribute.step_traits import graph_share, on_cores
from findwall.attribute.waits import idle_in_front
from findwall.attribute.whatif import gone, in_lists, lists_at_best
from findwall.fixes import Fix, NoUse, Outcome, Use, no_use
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.claims import Claim
from findwall.replay.change import Change

MOVES = ("launch-bound",)


def advise(facts: Facts) -> Outcome:
    if on_cores(facts):
        return NoUse(Claim("device/cores"), obvious=True)
    if graph_share(facts) > MAJORITY_SHARE:
        return no_use("graph/replayed-already")
    atoms = averages(facts)
    copied = of_class(facts, "memcpy")[atoms]
    kernels = atoms[~copied]
    launches = len(kernels) / facts.steps.count
    if len(kernels) == 0:
        return no_use("averages-in-lists/none")
    waited = idle_in_front(facts, "launch-bound", atoms)
    if waited <= MENTION_SHARE * step_ms(facts):
        return no_use("averages-in-lists/hidden")
    dropped = gone(facts, atoms[copied])
    copies = float(copied.sum()) / facts.steps.count
    return Use(
        Claim("averages-in-lists/foreach", {"kernels": launches, "copies": copies, "waits_ms": waited}),
        lists_at_best(facts, kernels) + dropped,
        likely=lambda made: Change() if "cuda-graphs" in made else in_lists(facts, kernels) + dropped,
    )


FIX = Fix(MOVES, "needs-review", advise)
