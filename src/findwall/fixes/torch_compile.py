"""Let torch.compile fuse chains of kernels and issue the step from generated code.

What it does:
`model = torch.compile(model)` traces the model and generates kernels: a chain of pointwise ops,
norms and casts becomes one kernel that reads once and writes once; attention written out is
recognised; matmuls with odd dimensions are padded. The dispatcher is left out, so the host issues a
step faster; with `mode="reduce-overhead"` launches are recorded as CUDA graphs besides.

When it does not help:
The step waits for the loader, a copy, a synchronisation or communication, or its matmuls are
already at the roof: then there is nothing to fuse. For small inference calls the guards that each
call checks can cost more than the dispatcher they replace; `mode="reduce-overhead"` or a CUDA graph
is the remedy there. Changing shapes make it compile again and again.

Risk:
The first steps take minutes. Fused kernels round less often than the ops they replace, so results
differ in the last bits. Python that depends on values breaks the graph.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.fixes.advice import Advice, a_step, gain_ms, no_use, use
from findwall.fixes.job import compiled_share, graph_share, is_compiled, is_training
from findwall.units import format_share
from findwall.walls.evidence import listed, ops_named

MOVES = (
    "unfused-pointwise",
    "launch-bound",
    "unfused-attention",
    "dtype-casts",
    "layout-copies",
    "misaligned-shapes",
)
SAFETY = "changes-numerics"
POPULAR = True
FUSABLE = ("unfused-pointwise", "dtype-casts", "layout-copies")


def advise(facts: Facts) -> Advice:
    share = compiled_share(facts)
    if is_compiled(facts) and share > 0.02:
        return no_use(
            f"the model is compiled already ({format_share(share)} of device time in generated kernels)"
        )
    if is_compiled(facts):
        return no_use("the model is compiled already")
    fused, launches = gain_ms(facts, *FUSABLE), gain_ms(facts, "launch-bound")
    if gain_ms(facts, *MOVES) <= 0:
        return no_use("there is nothing to fuse, and the device never waits for launches")
    if launches > fused:
        return _for_launches(facts, launches)
    causes = [cause for cause in MOVES if (facts.recoverable_ms(cause) or 0.0) > 0.01 * facts.step / 1e6]
    chains = ops_named(facts, "unfused-pointwise")
    named = f" The longest chains are of {chains}." if chains and "unfused-pointwise" in causes else ""
    return use(f"`model = torch.compile(model)` fuses what is {listed(causes)} now.{named}")


def _for_launches(facts: Facts, launches: float) -> Advice:
    if graph_share(facts) > 0.5:
        return no_use("a CUDA graph already issues the kernels")
    plain = (
        "The default mode can be slower than eager for calls this small." if not is_training(facts) else ""
    )
    return use(
        f'`torch.compile(model, mode="reduce-overhead")`: the device waits {a_step(launches)} for '
        f"launches. {plain}".strip()
    )
