"""Units: one distinct op of a step each, and the device rows of all its calls.

Attention that is written out becomes units that say what one call of a fused kernel would do, forward and
backward. The optimizer's update is one: a list of tensors, which a fused one goes through once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.facts.facts import Facts, matching, of_class, rows_of
from findwall.facts.op_shapes import tensors_of
from findwall.facts.step_traits import HAVE_FUSED
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.model.events import Bool, Inputs
from findwall.model.intervals import I64
from findwall.model.probes import ATTENTION, OPTIMIZER
from findwall.step.call_names import optimizers
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.op_families.optimizer import parameter_count
from findwall.work.work_facts import WorkFacts

Made = frozenset[str]  # fixes that are made together


class Unit(msgspec.Struct, frozen=True):
    kind: str  # product, conv, norm, attention (written out), attention kernel, optimizer, upload
    op: str  # what it is probed as
    inputs: Inputs
    rows: I64  # device rows of all calls
    carries: Bool  # of these rows: which take the op's time once it is another; the others take none
    calls: int
    ns: float  # a step
    math: str = ""  # the format of its products
    wide: bool = False  # all its numbers are fp32
    nchw: bool = False  # it reads images that are not channels-last
    odd: tuple[int, ...] = ()  # extents that keep it off the fast kernels
    tuned: bool = False  # cuDNN tries out its convolutions
    absolute: bool = False  # it cannot be run as it is: the probe's own time counts


# -- attention -----------------------------------------------------------------------------------------

SOFTMAX = "_softmax"
MASKS = frozenset({"masked_fill", "masked_fill_", "where", "tril"})
SCORE_DIMS = (3, 4)  # of the scores: [batch·heads, …] or [batch, heads, …]


def attention_units(facts: WorkFacts) -> Iterator[Unit]:
    """Two units for each shape of scores; where heads or widths cannot be told, none."""
    atoms = facts.atoms.of("unfused-attention")
    if len(atoms) == 0:
        return
    products = of_class(facts, "matmul")[atoms]
    softmaxes = _ops_named(facts, atoms[~products], SOFTMAX)
    for scores in dict.fromkeys(softmaxes.values()):
        calls = [row for row, one in softmaxes.items() if one == scores]
        yield from _of_scores(facts, scores, len(calls), atoms[products], atoms[~products])


def _of_scores(facts: WorkFacts, scores: Tensor, calls: int, products: I64, beside: I64) -> Iterator[Unit]:
    *batch, rows, columns = scores.dims
    mine, width = _products_on(facts, products, math.prod(batch), rows, columns)
    if width is None:
        return
    dtype = _dtype(facts, int(mine[0]))  # the scores' own may be wider: autocast's softmax writes fp32
    lead = batch if len(batch) == 2 else [math.prod(batch), 1]
    query: list[int | list[int]] = [*lead, rows, width]
    key: list[int | list[int]] = [*lead, columns, width]
    mask, causal = _mask(facts, beside, scores)
    index = facts.kernels.op[facts.atoms.index[mine]]
    backward = facts.links.backward[np.maximum(index, 0)] & (index >= 0)
    for way, chosen in (("forward", ~backward), ("backward", backward)):
        atoms = mine[chosen]
        if len(atoms) == 0:
            continue
        found = rows_of(facts, atoms)
        yield Unit(
            kind="attention",
            op=ATTENTION,
            inputs=Inputs([query, key, mask], [dtype] * 3, [], [way, str(causal)]),
            rows=found,
            carries=np.ones(len(found), bool),
            calls=calls,
            ns=float(facts.atoms.own[atoms].sum()) / facts.steps.count,
            wide=dtype.lower() == "float",
            absolute=True,
        )


def _ops_named(facts: WorkFacts, atoms: I64, stem: str) -> dict[int, Tensor]:
    """The first tensor of each op of this name that owns one of these atoms, by the op's row."""
    found: dict[int, Tensor] = {}
    for row in np.unique(facts.kernels.op[facts.atoms.index[atoms]]).tolist():
        if row < 0 or facts.timeline.name_of(row).rpartition("::")[2] != stem:
            continue
        tensor = Arguments(facts.timeline.inputs_of(row)).tensor(0)
        if tensor is not None and len(tensor.dims) in SCORE_DIMS:
            found[row] = tensor
    return found


def _products_on(facts: WorkFacts, atoms: I64, batch: int, rows: int, columns: int) -> tuple[I64, int | None]:
    """Products that make or read scores of this shape, and the width of their other side."""
    mine, widths = [], set()
    for atom in atoms.tolist():
        tensors = [one.dims for one in tensors_of(facts, facts.op_row(atom))]
        width = _width(tensors[-2:], batch, rows, columns)
        if width is not None:
            mine.append(atom)
            widths.add(width)
    return np.array(mine, np.int64), widths.pop() if len(widths) == 1 else None


def _dtype(facts: WorkFacts, atom: int) -> str:
    tensors = tensors_of(facts, facts.op_row(atom))
    return tensors[-1].dtype if tensors else "float"


def _width(tensors: list[tuple[int, ...]], batch: int, rows: int, columns: int) -> int | None:
    """Of a product [batch, m, k] · [batch, k, n] with the scores on one side: the size that is not theirs."""
    if len(tensors) != 2 or any(len(dims) != 3 or dims[0] != batch for dims in tensors):
        return None
    (_, m, k), (_, _, n) = tensors
    sizes = sorted((m, k, n))
    for one in (rows, columns):
        if one not in sizes:
            return None
        sizes.remove(one)
    return sizes[0]


def _mask(facts: WorkFacts, beside: I64, scores: Tensor) -> tuple[list[int | list[int]], bool]:
    """What is added to the scores (its shape), and whether they are masked the same for all: causal then."""
    causal = False
    for row in np.unique(facts.kernels.op[facts.atoms.index[beside]]).tolist():
        stem = facts.timeline.name_of(row).rpartition("::")[2] if row >= 0 else ""
        tensors = tensors_of(facts, row)
        if stem in ("add", "add_") and len(tensors) == 2 and tensors[0].dims == scores.dims:
            return list(tensors[1].dims), False
        causal |= stem in MASKS and scores.dims[-1] == scores.dims[-2]
    return [], causal


# -- the optimizer -------------------------------------------------------------------------------------

PIECE = 1 << 22  # numbers of a parameter, where only their sum is known: a weight of 2048 × 2048
_FUSED = re.compile("fused", re.IGNORECASE)
KEEPS_STATE = ("mul", "lerp")  # what an update with momentum does to its state


def optimizer_unit(facts: Facts) -> Unit | None:
    """None where the optimizer is fused already, has no fused form, or its tensors are not told."""
    name = next((one for one in optimizers(facts.timeline) if one in HAVE_FUSED), None)
    if name is None or facts.spent_ms("unfused-optimizer") <= 0:
        return None
    index = np.unique(facts.atoms.index[of_class(facts, "optimizer")])
    fused = matching(facts, facts.kernels.row[index], _FUSED)
    if facts.kernels.duration[index[fused]].sum() > MAJORITY_SHARE * facts.kernels.duration[index].sum():
        return None
    tensors, stems = _parameters(facts, facts.kernels.op[index])
    shapes: list[int | list[int]] = [list(one.dims) for one in tensors] or _by_size(facts)
    if not shapes:
        return None
    momentum = any(stem.startswith(KEEPS_STATE) for stem in stems)
    return Unit(
        kind="optimizer",
        op=OPTIMIZER,
        inputs=Inputs([shapes], [tensors[0].dtype if tensors else "float"], [], [name, str(momentum)]),
        rows=facts.kernels.row[index],
        carries=np.ones(len(index), bool),
        calls=facts.steps.count,
        ns=float(facts.kernels.duration[index].sum()) / facts.steps.count,
        absolute=True,
    )


def _parameters(facts: StepFacts, ops: I64) -> tuple[list[Tensor], set[str]]:
    """The tensors of the op that is called once for each parameter, and what the update's ops are called.

    An op that a parameter has one of goes over the fewest numbers: others are called more often.
    """
    by_name: dict[str, list[Tensor]] = {}
    for row in np.unique(ops[ops >= 0]).tolist():
        given = Arguments(facts.timeline.inputs_of(row))
        first = given.tensor(0)
        found = given.tensor_list(0) if given.is_list(0) else [first] if first is not None else []
        by_name.setdefault(facts.timeline.name_of(row).rpartition("::")[2], []).extend(found)
    sizes = {name: sum(one.elements for one in found) for name, found in by_name.items()}
    most = max(sizes.values(), default=0)
    # What goes over far fewer numbers are the counts of steps, not parameters.
    large = {name: size for name, size in sizes.items() if size > MENTION_SHARE * most}
    if not large:
        return [], {name.removeprefix("_foreach_") for name in by_name}
    least = min(large, key=lambda name: (large[name], name))
    return _once_a_step(by_name[least], facts.steps.count), {name.removeprefix("_foreach_") for name in large}


def _by_size(facts: StepFacts) -> list[int | list[int]]:
    """Where lists were recorded without shapes: all parameters, in pieces as large as a layer's weight."""
    count = int(parameter_count(facts.timeline, facts.steps.count) or 0)
    whole, rest = divmod(count, PIECE)
    return [*([PIECE] for _ in range(whole)), *([[rest]] if rest else [])]


def _once_a_step(tensors: list[Tensor], steps: int) -> list[Tensor]:
    """Of tensors gathered over several steps those of one."""
    found: list[Tensor] = []
    for tensor, count in Counter(tensors).items():
        found += [tensor] * max(round(count / steps), 1)
    return found
