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
from findwall.fixes.advice import Advice, a_step, gain_ms, no_use, use
from findwall.fixes.job import is_compiled, small_kernels
from findwall.walls.evidence import carriers

MOVES = ("unfused-pointwise", "launch-bound")
SAFETY = "changes-numerics"
POPULAR = False

# What the marks of a chain stand for: all of them among its ops.
CHAINS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"tanh", "pow", "mul"}), "`F.gelu(x, approximate='tanh')`"),
    (frozenset({"erf", "mul"}), "`F.gelu(x)`"),
    (frozenset({"rsqrt", "mean", "pow"}), "`F.rms_norm`"),
    (frozenset({"var", "mean", "sub"}), "`F.layer_norm`"),
    (frozenset({"sigmoid", "mul", "silu"}), "`F.silu(x)`"),
    (frozenset({"exp", "log", "sum"}), "`F.cross_entropy` or `torch.logsumexp`"),
)
CALLS_OF_A_LOOP = 16  # a step, of one kernel on one shape: then Python goes round


def advise(facts: Facts) -> Advice:
    spent = facts.spent_ms("unfused-pointwise")
    ops = {(one.op or "").rpartition("::")[2].rstrip("_") for one in carriers(facts, "unfused-pointwise", 24)}
    found = [name for marks, name in CHAINS if marks <= ops]
    if found and gain_ms(facts, "unfused-pointwise") > 0:
        return use(
            f"{' and '.join(found)} in place of the chain written out: {a_step(spent)} are pointwise "
            f"kernels.",
            gain_ms(facts, "unfused-pointwise"),
        )
    if gain_ms(facts, "launch-bound") > 0.2 * facts.step / 1e6 and not is_compiled(facts):
        return use(
            "Replace Python loops by one call on a larger tensor (a cuDNN layer such as nn.GRU, bmm, "
            "vmap): the host "
            f"issues about {small_kernels(facts):,.0f} kernels a step."
        )
    return no_use("no chain that a library op covers was recognised")
