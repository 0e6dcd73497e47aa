"""Use the library's op for what is written out op by op.

What it does:
GELU, SiLU, RMSNorm, LayerNorm, cross-entropy and recurrent layers exist as single ops with kernels
of their own. Written out they launch a kernel for every multiplication and move the whole tensor
each time. Dropout, residual addition and norm come as one in Transformer Engine, xFormers and flash-attn
(fused dropout + add + norm); a loop over time steps is `nn.GRU` or `nn.LSTM`. What compares all values of two
sides to count or add up those that are smaller is `torch.searchsorted`, with a `cumsum` of what is added up:

    place = torch.searchsorted(edges, values, right=True)       # edges sorted: how many are <= each value
    total = functional.pad(weights.cumsum(-1), (1, 0))[place]   # of their weights, in the order of the edges

A recurrent cell that is written out gate by gate is the library's layer, with its weights put together in the
library's order of gates (nn.LSTM: input, forget, cell, output; nn.GRU: reset, update, new):

    lstm.weight_ih_l0.copy_(torch.cat([of_x_i.weight, of_x_f.weight, of_x_g.weight, of_x_o.weight]))
    outs, _ = lstm(x)                                           # instead of a loop over x[:, t]

Windows of images that are taken apart (`F.unfold`) only to be multiplied are a convolution:

    y = F.conv2d(x, weight.view(out, channels, k, k), padding=k // 2)     # instead of weight @ F.unfold(x, k)

When it does not help:
The chain is not one that a library op covers: then torch.compile fuses it. Loops over samples or pairs are
for vectorise-loop and batch-small-ops.

Risk:
Constants must agree (eps, the tanh or erf form of GELU); results differ in the last bits.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from findwall.facts.facts import causes_of
from findwall.facts.gains import blind_ms, launch_idle
from findwall.facts.likely_times import compiles
from findwall.facts.step_traits import calls_around, cells_called
from findwall.facts.user_lines import line_of
from findwall.facts.written_out.counted_pairs import counted_pairs
from findwall.facts.written_out.unfolded_images import unfolded_images
from findwall.fixes import (
    Claim,
    Facts,
    Figures,
    Fix,
    NoUse,
    Outcome,
    Use,
    at_most,
    free_launches,
    gain_ms,
    gone,
    is_compiled,
    lines,
    no_use,
    of_class,
    pieces,
    rows_of,
    small_kernels,
    step_ms,
    time_of,
    to_floor,
)
from findwall.model.catalogue import FAIR_PART, MAJORITY_SHARE, MATRIX_CLASSES, WORTH_IT
from findwall.model.events import Kind
from findwall.model.intervals import I64
from findwall.replay.change import Change, NoHostWork
from findwall.step.step_facts import StepFacts
from findwall.units import NOT_ZERO_NS
from findwall.work.work_facts import WorkFacts
from findwall.work.written_losses import written_loss

FUSED = ("unfused-pointwise", "launch-bound")
COUNTED = ("slow-kernels", "dtype-casts", "memory-roof")  # passes over all pairs, besides
UNFOLDED = ("layout-copies", "memory-roof", "slow-kernels")
MOVES_OF_CELLS = (*FUSED, "layout-copies", "memory-roof", "slow-kernels")
MOVES = (*FUSED, *COUNTED, UNFOLDED[0])

SILU = "silu"
RECURRENT_OPS = frozenset({"aten::gru", "aten::lstm", "aten::rnn_tanh", "aten::rnn_relu"})
# What the marks of a chain stand for: each of them takes time of its own, and for each call of its rarest
# mark the others are called this often. Where the job calls the op already, it has not written it out.
CHAINS: tuple[tuple[dict[str, int], str, frozenset[str]], ...] = (
    ({"sigmoid": 1, "tanh": 1, "mul": 1}, "recurrent", RECURRENT_OPS),
    ({"tanh": 1, "log": 1, "exp": 1}, "mish", frozenset({"aten::mish"})),
    ({"tanh": 1, "mul": 3, "add": 2}, "gelu-tanh", frozenset({"aten::gelu"})),
    ({"erf": 1, "mul": 2}, "gelu", frozenset({"aten::gelu"})),
    # A gate has the same marks, and a trace does not tell which tensor was multiplied.
    ({"sigmoid": 1, "mul": 1}, SILU, frozenset({"aten::silu", "aten::silu_"})),
    ({"pow": 1, "mean": 1, "mul": 1}, "rms-norm", frozenset({"aten::rms_norm", "aten::_fused_rms_norm"})),
    ({"var": 1, "sub": 1}, "layer-norm", frozenset({"aten::layer_norm"})),
)
# What chains have besides, and how many of its ops a chain has forward and backward for one forward.
IN_EVERY_CHAIN = {"mul": 2, "add": 1, "div": 1}
BOTH_WAYS = 3
# Over logits, that F.cross_entropy makes beside a softmax and its backward: zeros for a gradient, which are
# filled in, and with smoothed labels a sum along the words, which is spread again. Counted in torch 2.13.
LOSS_PASSES = 4
MARK_SHARE = 0.003  # of the step: less time than this in an op is no mark. Chosen by hand, not calibrated.
# Ops of the library that take many small ones where it has no kernel of their own, on a CPU above all.
LIBRARY_OPS = RECURRENT_OPS.union(*(ops for _, _, ops in CHAINS))


def use(facts: Facts) -> Outcome:
    return (
        _cells(facts)
        or _written_cell(facts)
        or _loss(facts)
        or _pairs(facts)
        or _unfolded(facts)
        or _chains(facts)
    )


def _loss(facts: Facts) -> Outcome | None:
    """A loss over many words that the job writes out; None where there is none worth it."""
    found = written_loss(facts)
    if found is None:
        return None
    spent = time_of(facts, found.beside)
    if spent <= WORTH_IT * step_ms(facts):
        return None
    figures: Figures = {
        "spent_ms": spent,
        "rows": found.rows,
        "words": found.words,
        "passes": len(found.beside) / facts.steps.count,
    }
    change = _without_passes(facts, found.beside)
    return Use(
        Claim("builtin-ops/cross-entropy", figures, places=lines(line_of(facts, found.row))),
        gone(facts, found.beside) + to_floor(facts, found.softmax),
        FUSED[:1],
        likely=lambda made: Change() if compiles(made) else change,
        uncurved=True,
        condition="loss-is-cross-entropy",
    )


def _pairs(facts: Facts) -> Outcome | None:
    """Comparisons of all values that are only added up; None where there are none worth it."""
    found = counted_pairs(facts)
    if found is None or (spent := time_of(facts, found.atoms)) <= WORTH_IT * step_ms(facts):
        return None
    figures: Figures = {
        "spent_ms": spent,
        "values": found.values,
        "others": found.others,
        "weighted": found.weighted,
    }
    change = gone(facts, found.atoms)
    return Use(
        Claim("builtin-ops/pairs", figures, places=lines(line_of(facts, found.row))),
        change,
        causes_of(facts, found.atoms, (FUSED[0], *COUNTED)),
        likely=lambda made: change,
        uncurved=True,
    )


def _unfolded(facts: Facts) -> Outcome | None:
    """Convolutions written as products of columns; None where there are none worth it."""
    found = unfolded_images(facts)
    if found is None or (spent := time_of(facts, found.atoms)) <= WORTH_IT * step_ms(facts):
        return None
    change = gone(facts, found.atoms)
    return Use(
        Claim(
            "builtin-ops/convolution",
            {"spent_ms": spent, "window": found.window},
            places=lines(line_of(facts, found.row)),
        ),
        change,
        causes_of(facts, found.atoms, UNFOLDED),
        likely=lambda made: change,
        uncurved=True,
    )


def _without_passes(facts: Facts, beside: I64) -> Change:
    """Without them, but for as many as the library's loss makes itself: neither the longest nor the shortest
    of today's."""
    order = np.argsort(facts.atoms.own[beside], kind="stable")
    stay = LOSS_PASSES * facts.steps.count
    first = max((len(beside) - stay) // 2, 0)
    return gone(facts, np.delete(beside[order], slice(first, first + stay)))


def _cells(facts: Facts) -> Outcome | None:
    """A cell that is called for one time step after the other; None where there is none worth it."""
    cells = cells_called(facts)
    if cells is None or len(cells.atoms) < WORTH_IT * len(facts.atoms.index):
        return None
    atoms = cells.atoms
    figures: Figures = {"calls": cells.calls, "issued": small_kernels(facts), "pieces": pieces(facts)}
    floor = to_floor(facts, atoms)
    # The products of what comes from outside are one for all time steps; the others stay one after the other.
    halfway = at_most(facts, atoms, MAJORITY_SHARE)
    free = free_launches(facts, atoms) + Change((NoHostWork(rows_of(facts, atoms)),))
    return Use(
        Claim(
            "builtin-ops/cells",
            figures,
            {"layer": cells.layer},
            lines(line_of(facts, cells.row)),
        ),
        floor + free,
        ("launch-bound",),
        likely=lambda made: halfway + free,
        may=(lambda made: floor + free, lambda made: free),
        uncurved=True,
        condition="inputs-known-before",
    )


def _written_cell(facts: Facts) -> Outcome | None:
    """A cell that is written out, one time step after the other; None where there is none worth it."""
    cell = facts.cell
    if cell is None or len(cell.atoms) < WORTH_IT * len(facts.atoms.index):
        return None
    products = cell.atoms[of_class(facts, *MATRIX_CLASSES)[cell.atoms]]
    # The layer's kernels do the rest beside the products, and no gradient of a part is as large as the whole.
    free = gone(facts, np.setdiff1d(cell.atoms, products)) + free_launches(facts, products)
    free += Change((NoHostWork(rows_of(facts, cell.atoms)),))
    best = free + to_floor(facts, products)
    figures: Figures = {"rounds": cell.rounds, "launched": len(cell.atoms) / facts.steps.count}
    return Use(
        Claim(
            "builtin-ops/written-cell",
            {**figures, "pieces": pieces(facts)},
            {"layer": cell.layer},
            lines(cell.place or None),
        ),
        best,
        causes_of(facts, cell.atoms, MOVES_OF_CELLS),
        likely=lambda made: free,
        may=(lambda made: best, lambda made: free),
        uncurved=True,
    )


def _chains(facts: Facts) -> Outcome:
    found = _recognised(facts)
    chains = [Claim(f"builtin-ops/{name}") for name in found]
    condition = "x-times-sigmoid" if SILU in found else ""
    waited, fused = launch_idle(facts), gain_ms(facts, "unfused-pointwise")
    if waited > max(FAIR_PART * step_ms(facts), fused) and not is_compiled(facts):
        if called := _called_already(facts):
            return NoUse(Claim("builtin-ops/called-already", {"pieces": pieces(facts)}, {"op": called}))
        if not found:
            return no_use("builtin-ops/none")
        issues: Figures = {"issued": small_kernels(facts), "pieces": pieces(facts)}
        return Use(
            Claim("builtin-ops/instead-of-small-ops", issues, parts=chains),
            _best(facts, np.flatnonzero(~of_class(facts, "optimizer"))),
            condition=condition,
        )
    covered = _covered(facts) if found and fused + blind_ms(facts, "unfused-pointwise") > 0 else 0.0
    if covered >= FAIR_PART:  # one that covers less has its ops by chance
        figures: Figures = {"pieces": pieces(facts), "pointwise_ms": facts.spent_ms("unfused-pointwise")}
        places = lines(_written_at(facts, found[0]))
        claim = Claim("builtin-ops/instead-of-writing-out", figures, parts=chains, places=places)
        best = _best(facts, facts.atoms_of("unfused-pointwise"))
        # What is called instead is what a compiler would make of the chain: of both, the compiler does it.
        return Use(
            claim,
            best,
            FUSED[:1],
            likely=(lambda made: Change() if compiles(made) else best) if covered > MAJORITY_SHARE else None,
            uncurved=True,
            condition=condition,
        )
    return no_use("builtin-ops/none")


def _written_at(facts: Facts, name: str) -> str | None:
    """The line of an op that tells this chain."""
    marks = next(chain for chain, one, _ in CHAINS if one == name).keys() - IN_EVERY_CHAIN.keys()
    atoms = facts.atoms.of("unfused-pointwise")
    telling = [atom for atom in atoms.tolist() if _stem(facts.op_name(atom)) in marks]
    return next((line for atom in telling if (line := line_of(facts, facts.op_row(atom))) is not None), None)


def _covered(facts: Facts) -> float:
    """Of what the pointwise kernels do the share that can be called instead: as many of each op as the chain
    has, forward and backward, for each of its calls."""
    atoms = facts.atoms.of("unfused-pointwise")
    stems = np.array([_stem(facts.op_name(atom)) for atom in atoms.tolist()], object)
    spent = {stem: float(facts.own[atoms[stems == stem]].sum()) for stem in set(stems.tolist())}
    calls = Counter(stems.tolist())
    expected: Counter[str] = Counter()
    for chain, name, _ in CHAINS:
        if name in _recognised(facts):
            rarest = min(calls[mark] for mark in chain.keys() - IN_EVERY_CHAIN.keys())
            for mark, often in (IN_EVERY_CHAIN | chain).items():
                expected[mark] += BOTH_WAYS * often * rarest
    covered = sum(spent[stem] * min(expected[stem] / calls[stem], 1.0) for stem in spent)
    return covered / max(sum(spent.values()), NOT_ZERO_NS)


def _stem(op: str | None) -> str:
    """What an op computes, or the backward of which it is."""
    return (op or "").rpartition("::")[2].rstrip("_").removesuffix("_backward")


def _best(facts: Facts, atoms: I64) -> Change:
    """Chains and kernels too small for the device at their floor, and these atoms' launches saved."""
    return sum((to_floor(facts, facts.atoms_of(cause)) for cause in FUSED), free_launches(facts, atoms))


def _called_already(facts: WorkFacts) -> str | None:
    """The library's op that most of the step's work on the device lies in, if there is one."""
    around = calls_around(facts, np.arange(len(facts.atoms.index)), LIBRARY_OPS)
    names, counts = np.unique(facts.timeline.events.name[around[around >= 0]], return_counts=True)
    if counts.sum() <= MAJORITY_SHARE * len(around):
        return None
    return facts.timeline.names[int(names[np.argmax(counts)])]


def _recognised(facts: Facts) -> list[str]:
    """Library ops that are written out: all of their marks take time; of two that share one the first."""
    called = _called(facts)
    calls = _marks(facts)
    found: list[str] = []
    taken: set[str] = set()
    for chain, name, ops in CHAINS:
        telling = chain.keys() - {"mul", "add"}
        if ops & called or telling & taken or not chain.keys() <= calls.keys():
            continue
        rarest = min(calls[mark] for mark in telling)
        if all(calls[mark] >= often * rarest for mark, often in chain.items()):
            found.append(name)
            taken |= telling
    return found


def _called(facts: StepFacts) -> frozenset[str]:
    """The library's ops that this job calls."""
    rows = facts.timeline.rows(Kind.OP)
    names = (facts.timeline.names[at] for at in np.unique(facts.timeline.events.name[rows]).tolist())
    return LIBRARY_OPS.intersection(names)


def _marks(facts: Facts) -> dict[str, int]:
    """Pointwise ops of the forward pass outside the library's own that take time, and how often they are
    called. A backward pass multiplies and adds whatever it is of, and one that is differentiated has the
    function's own ops too."""
    atoms = facts.atoms.of("unfused-pointwise")
    rows = facts.kernels.op[facts.atoms.index[atoms]]
    outside = calls_around(facts, atoms, LIBRARY_OPS) < 0
    mine = outside & (rows >= 0) & ~facts.links.backward[np.maximum(rows, 0)]
    atoms, rows = atoms[mine], rows[mine]
    names, group = np.unique(facts.timeline.events.name[rows], return_inverse=True)
    lengths = np.bincount(group, facts.own[atoms], minlength=len(names))
    spent: dict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for at, length, count in zip(names.tolist(), lengths.tolist(), np.bincount(group).tolist(), strict=True):
        name = facts.timeline.names[at].rpartition("::")[2].rstrip("_")
        spent[name] += length
        calls[name] += count
    return {name: count for name, count in calls.items() if spent[name] >= MARK_SHARE * facts.step}


FIX = Fix(MOVES, "changes-numerics", use)
