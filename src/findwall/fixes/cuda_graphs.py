"""Record the step's launches once as a CUDA graph and replay them with one call.

What it does:
A graph holds kernels, their arguments and their order. Replaying it costs the host one call instead
of thousands, so that the device runs kernel after kernel however small they are. By hand with
`torch.cuda.CUDAGraph` (inference) or `torch.cuda.make_graphed_callables` (training), or by
`torch.compile(mode="reduce-overhead")`.

When it does not help:
The device is busy anyway: a graph saves launches, not bytes or FLOPs. What synchronises inside the
region, allocates on the host or changes shape cannot be captured.

Risk:
Inputs and outputs live at fixed addresses: copy new data into them, and clone results that must
last. Shapes are fixed. Memory of the graph is held for good.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.fixes.advice import Advice, a_step, gain_ms, no_use, use
from findwall.fixes.job import graph_share, is_training, small_kernels, syncs

MOVES = ("launch-bound",)
SAFETY = "needs-review"
POPULAR = True


def advise(facts: Facts) -> Advice:
    if graph_share(facts) > 0.5:
        return no_use("the kernels are already replayed from a graph")
    waited = gain_ms(facts, "launch-bound")
    if waited <= 0:
        return no_use("the device never waits for the host to launch")
    way = (
        "`torch.cuda.make_graphed_callables(model, sample)`"
        if is_training(facts)
        else "`with torch.cuda.graph(g): out = model(static_in)`, then `g.replay()`"
    )
    found = [wait for wait in syncs(facts) if wait.op is not None]
    first = f" First take {found[0].place} out: a capture cannot hold a synchronisation." if found else ""
    return use(
        f'{way}, or `torch.compile(mode="reduce-overhead")`: about {small_kernels(facts):,.0f} launches '
        f"a step "
        f"become one, and the device waits {a_step(waited)} for them now.{first}"
    )
