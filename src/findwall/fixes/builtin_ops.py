"""Use the library's op for what is written out op by op, and one call for a Python loop.

What it does:
GELU, SiLU, RMSNorm, LayerNorm, cross-entropy and recurrent layers exist as single ops with kernels
of their own. Written out they launch a kernel for every multiplication and move the whole tensor
each time. A loop over time steps, heads or samples becomes one call on a larger tensor.

When it does not help:
The chain is not one that a library op covers: then torch.compile fuses it.

Risk:
Constants must agree (eps, the tanh or erf form of GELU); results differ in the last bits.
"""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.fixes.advice import Advice, a_step, gain_ms, no_use, step_ms, use
from findwall.fixes.job import is_compiled, launch_idle, optimizer_launches, small_kernels
from findwall.walls.evidence import carriers, pieces

MOVES = ("unfused-pointwise", "launch-bound")
SAFETY = "changes-numerics"

# What the marks of a chain stand for: each of them takes time of its own.
CHAINS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"sigmoid", "tanh", "mul"}), "`nn.GRU` or `nn.LSTM`"),
    (frozenset({"tanh", "log", "exp"}), "`F.mish(x)`"),
    (frozenset({"tanh", "mul", "add"}), "`F.gelu(x, approximate='tanh')`"),
    (frozenset({"erf", "mul"}), "`F.gelu(x)`"),
    (frozenset({"sigmoid", "mul"}), "`F.silu(x)`"),
    (frozenset({"pow", "mean", "mul"}), "`F.rms_norm`"),
    (frozenset({"var", "sub"}), "`F.layer_norm`"),
)
MARK = 0.003  # of the step: less time than this in an op is no mark


def advise(facts: Facts) -> Advice:
    found = " and ".join(_recognised(facts))
    waited, fused = launch_idle(facts), gain_ms(facts, "unfused-pointwise")
    if waited > max(0.2 * step_ms(facts), fused) and not is_compiled(facts):
        such = found or "nn.GRU, bmm, vmap"
        return use(
            f"Replace Python loops and chains of small ops by one call on a larger tensor ({such}): "
            f"the host issues about {small_kernels(facts):,.0f} {pieces(facts)} a step.",
            gain_ms(facts, *MOVES) - optimizer_launches(facts),
        )
    if found and fused > 0:
        spent = a_step(facts.spent_ms("unfused-pointwise"))
        how = f"{found} in place of what is written out: {spent} are pointwise {pieces(facts)}."
        return use(how, fused, ("unfused-pointwise",))
    return no_use("no chain that a library op covers was recognised")


def _recognised(facts: Facts) -> list[str]:
    """Library ops all of whose marks take time; of two that share a mark only the first."""
    spent: dict[str, float] = {}
    for one in carriers(facts, "unfused-pointwise", 48):
        name = (one.op or "").rpartition("::")[2].rstrip("_")
        spent[name] = spent.get(name, 0.0) + one.ms
    marks = {name for name, amount in spent.items() if amount >= MARK * step_ms(facts)}
    found: list[str] = []
    taken: set[str] = set()
    for chain, name in CHAINS:
        telling = chain - {"mul", "add"}
        if chain <= marks and not telling & taken:
            found.append(name)
            taken |= telling
    return found
