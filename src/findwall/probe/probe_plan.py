"""Which ops of the step are worth running on the device as fixes would run them, and what such probes say.

A unit is one distinct op: its name, its recorded inputs, and the device rows of all its calls. A variant says
how the op runs once some fixes are made; the plan names the units that fixes would change, longest first,
with each variant that a fix, or two together, would give them.

What counts of a probe is how much longer or shorter an op got between two of them, as it is and as it will
be: clocks and caches, which a probe meets in another state than the job, cancel out.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from findwall.facts.facts import Facts, of_class, rows_of
from findwall.facts.memory_copies import uploaded
from findwall.facts.number_formats import cast_ns
from findwall.facts.op_shapes import IMAGE_DIMS, channels_last, odd_dims, padded, padding_ns
from findwall.model.catalogue import MAJORITY_SHARE, MATRIX_CLASSES, SMALL_PART, WAITED_FOR_SHARE
from findwall.model.events import Bool, Inputs
from findwall.model.intervals import F64, I64
from findwall.model.machine import MATH_TYPES
from findwall.model.probes import AS_IS, UPLOAD, Probe, Probes
from findwall.probe.probed_ops import Made, Unit, attention_units, optimizer_unit
from findwall.replay.change import Change, Replace
from findwall.step.links import PAGEABLE
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments, Tensor, is_floating
from findwall.work.op_families import convolution
from findwall.work.work_facts import WorkFacts

MOST_UNITS = 64  # distinct ops: a step has seldom more that count. Chosen by hand.

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear"})
FUSED_ATTENTION = frozenset({"_efficient_attention_forward", "_efficient_attention_backward"})
BATCH_NORMS = frozenset(
    {"cudnn_batch_norm", "native_batch_norm", "cudnn_batch_norm_backward", "native_batch_norm_backward"}
)
COMPILERS = frozenset({"torch-compile", "reduce-overhead"})
# Units that one fix replaces by another op, and what that is called.
INSTEAD = {
    "attention": ("sdpa", "sdpa"),
    "optimizer": ("fused-optimizer", "fused"),
    "upload": ("pin-memory", "pinned"),
}
NARROW = {"bf16-autocast": "bf16", "fp16-autocast": "fp16"}
# What is planned for: each fix that changes how an op runs, and those that people make together.
PLANNED: tuple[Made, ...] = tuple(
    frozenset(names)
    for names in (
        {"bf16-autocast"},
        {"tf32"},
        {"channels-last"},
        {"bf16-autocast", "channels-last"},
        {"tf32", "channels-last"},
        {"pad-shapes"},
        {"sdpa"},
        {"bf16-autocast", "sdpa"},
        {"fused-optimizer"},
        {"pin-memory"},
    )
)


def units(facts: Facts) -> list[Unit]:
    """Every distinct op of the step that fixes could run in another way."""
    found = [*_ops(facts), *attention_units(facts), *_uploads(facts)]
    update = optimizer_unit(facts)
    return [*found, update] if update is not None else found


def variant(facts: WorkFacts, unit: Unit, made: Made) -> str:
    """How a unit runs once some fixes are made; AS_IS where they do not touch it.

    In TF32 "as it is" is a format of its own: the same op can run in fp32 as well.
    """
    if unit.kind in INSTEAD:
        fix, name = INSTEAD[unit.kind]
        parts = [_format(facts, unit, made), name] if fix in made else []
    else:
        parts = [_format(facts, unit, made), _layout(unit, made)]
        parts.append("padded" if unit.odd and made & {"pad-shapes", *COMPILERS} else "")
        parts.append("tuned" if unit.tuned else "")
    return "+".join(part for part in parts if part) or AS_IS


def as_is(facts: WorkFacts, unit: Unit) -> str:
    return variant(facts, unit, frozenset())


def plan(facts: Facts) -> list[Probe]:
    """What to run, the ops first that take longest: each as it is, then as fixes would run it.

    Of each kind of op most of its time is covered: what is short beside the products of today's step may be
    what takes longest once those are fast.
    """
    wanted = [(unit, _variants(facts, unit)) for unit in units(facts)]
    wanted = [pair for pair in wanted if pair[1] and pair[0].ns > WAITED_FOR_SHARE * facts.step]
    wanted.sort(key=lambda pair: -pair[0].ns)
    left: dict[str, float] = {}
    for unit, _ in wanted:
        left[unit.kind] = left.get(unit.kind, 0.0) + unit.ns
    least = {kind: SMALL_PART * total for kind, total in left.items()}
    found: list[Probe] = []
    for unit, variants in wanted[:MOST_UNITS]:
        if left[unit.kind] > least[unit.kind]:
            found += [_probe(unit, name) for name in variants]
        left[unit.kind] -= unit.ns
    return found


def _variants(facts: WorkFacts, unit: Unit) -> list[str]:
    """As it is first, where that can be run; empty: no fix changes it."""
    now = as_is(facts, unit)
    changed = list(dict.fromkeys(variant(facts, unit, made) for made in PLANNED))
    changed = [name for name in changed if name != now]
    if not changed:
        return []
    return changed if unit.absolute else [now, *changed]


def _probe(unit: Unit, name: str) -> Probe:
    return Probe(unit.op, unit.inputs, name, _padded(unit) if "padded" in name.split("+") else None)


# -- formats and layouts ---------------------------------------------------------------------------


def _format(facts: WorkFacts, unit: Unit, made: Made) -> str:
    if unit.kind in ("optimizer", "upload"):
        return ""
    narrow = next((name for fix, name in NARROW.items() if fix in made), None)
    if narrow is not None and unit.wide:
        return narrow if narrow in facts.ceilings.flops or not facts.ceilings.flops else "fp16"
    if unit.kind == "norm" or not unit.wide:
        return ""
    multiplies_so = unit.math == "fp32" and "tf32" in made and "tf32" in facts.ceilings.flops
    return "tf32" if multiplies_so or unit.math == "tf32" else ""


def _layout(unit: Unit, made: Made) -> str:
    """A compiler turns images for convolutions, and writes the norms' kernels itself."""
    turns = "channels-last" in made or (unit.kind == "conv" and bool(made & COMPILERS))
    return "nhwc" if unit.nchw and turns else ""


# -- units of the trace's own ops ------------------------------------------------------------------


def _ops(facts: WorkFacts) -> Iterator[Unit]:
    events, table = facts.timeline.events, facts.kernels
    index = np.unique(facts.atoms.index)
    index = index[table.op[index] >= 0]
    op = table.op[index]
    distinct, first, inverse = np.unique(
        events.name[op].astype(np.int64) * (int(events.inputs.max(initial=0)) + 2) + events.inputs[op] + 1,
        return_index=True,
        return_inverse=True,
    )
    is_image = not channels_last(facts)
    multiplies = np.zeros(len(table.row), bool)
    multiplies[facts.atoms.index[of_class(facts, *MATRIX_CLASSES)]] = True
    for at in range(len(distinct)):
        row = int(op[first[at]])
        kind = _kind(facts.timeline.name_of(row))
        inputs = facts.timeline.inputs_of(row)
        if not kind or inputs is None:
            continue
        mine = index[inverse.reshape(-1) == at]
        carrying = np.ones(len(mine), bool) if kind == "norm" else multiplies[mine]
        if carrying.any():
            yield _unit(facts, kind, row, inputs, mine, carrying, is_image)


def _unit(
    facts: WorkFacts, kind: str, row: int, inputs: Inputs, index: I64, carries: Bool, is_image: bool
) -> Unit:
    table = facts.kernels
    tensors = [one for one in Arguments(inputs).tensors() if is_floating(one.dtype)]
    longest = index[carries][np.argmax(table.duration[index[carries]])]
    math = int(table.math_index[longest])
    op = facts.timeline.name_of(row)
    return Unit(
        kind=kind,
        op=op,
        inputs=inputs,
        rows=table.row[index],
        carries=carries,
        calls=len(np.unique(table.op[index])),
        ns=float(table.duration[index].sum()) / facts.steps.count,
        math=MATH_TYPES[math] if math >= 0 else "",
        wide=bool(tensors) and all(one.dtype.lower() == "float" for one in tensors),
        nchw=kind in ("conv", "norm") and is_image and _reads_images(tensors),
        odd=tuple(odd_dims(facts, row)) if kind == "product" else (),
        tuned=kind == "conv" and _tunes(facts),
    )


def _kind(name: str) -> str:
    stem = name.rpartition("::")[2]
    if stem in PRODUCTS:
        return "product"
    if stem in convolution.OPS - convolution.HALVES:
        return "conv"
    if stem in FUSED_ATTENTION:
        return "attention kernel"
    return "norm" if stem in BATCH_NORMS else ""


def _reads_images(tensors: list[Tensor]) -> bool:
    first = tensors[0] if tensors else None
    return first is not None and len(first.dims) == IMAGE_DIMS and first.dims[1] > 1


def _tunes(facts: StepFacts) -> bool:
    """Whether cuDNN tries out its convolutions (`torch.backends.cudnn.benchmark`): its calls record it."""
    names = facts.timeline.names
    if "aten::cudnn_convolution" not in names:
        return False
    rows = np.flatnonzero(facts.timeline.events.name == names.index("aten::cudnn_convolution"))
    return len(rows) > 0 and Arguments(facts.timeline.inputs_of(int(rows[0]))).flag(6) is True


def _padded(unit: Unit) -> Inputs:
    """The same tensors with every odd extent padded, in the same order in memory."""
    dims: list[list[int | list[int]]] = []
    strides: list[list[int | list[int]]] = []
    for at, extents in enumerate(unit.inputs.dims):
        new = [padded(one) if one in unit.odd else one for one in extents if isinstance(one, int)]
        steps = unit.inputs.strides[at] if at < len(unit.inputs.strides) else []
        dims.append(list(new))
        strides.append(_dense(new, [one for one in steps if isinstance(one, int)]))
    return Inputs(dims, unit.inputs.types, strides, unit.inputs.concrete)


def _dense(dims: list[int], strides: list[int]) -> list[int | list[int]]:
    """Strides of a tensor without holes whose axes lie in the order that some strides say."""
    if len(strides) != len(dims):
        return []
    found: list[int | list[int]] = [0] * len(dims)
    step = 1
    for axis in sorted(range(len(dims)), key=lambda axis: (strides[axis], -axis)):
        found[axis] = step if strides[axis] else 0
        step *= dims[axis] if strides[axis] else 1
    return found


# -- copies ----------------------------------------------------------------------------------------


def _uploads(facts: WorkFacts) -> Iterator[Unit]:
    """Copies from pageable memory, by their size."""
    events = facts.timeline.events
    rows = uploaded(facts)
    if len(rows) == 0:
        return
    rows = rows[facts.timeline.named(PAGEABLE, rows)[events.name[rows]] & (events.nbytes[rows] > 0)]
    for size in np.unique(events.nbytes[rows]).tolist():
        mine = rows[events.nbytes[rows] == size]
        yield Unit(
            kind="upload",
            op=UPLOAD,
            inputs=Inputs([[size]], ["unsigned char"]),
            rows=mine,
            carries=np.ones(len(mine), bool),
            calls=len(mine),
            ns=float(events.duration[mine].sum()) / facts.steps.count,
            absolute=True,
        )


# -- what probes say -----------------------------------------------------------------------------------


class Probed(msgspec.Struct, frozen=True):
    """The rows that probes tell the time of, ns each."""

    rows: I64
    ns: F64
    instead: I64  # rows that go because an op that was probed does their work

    @property
    def change(self) -> Change:
        return Change((Replace(self.rows, self.ns),)) if len(self.rows) else Change()


NOTHING_PROBED = Probed(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


def probed(facts: Facts, made: Made) -> Probed:
    """All that probes know of the step with some fixes made."""
    probes = facts.run.probes
    if probes is None:
        return NOTHING_PROBED
    rows, ns = [], []
    kinds = set()
    for unit in _standing(units(facts), made):
        each = _each_ns(facts, unit, made, probes)
        if each is None:
            continue
        share = np.where(unit.carries, facts.timeline.events.duration[unit.rows], 0).astype(np.float64)
        rows.append(unit.rows)
        kinds.add(unit.kind)
        ns.append(each * unit.calls * share / max(float(share.sum()), 1.0))
    if not rows:
        return NOTHING_PROBED
    written_out = facts.atoms.of("unfused-attention") if "attention" in kinds else np.zeros(0, np.int64)
    return Probed(np.concatenate(rows), np.concatenate(ns), rows_of(facts, written_out))


def far_off(facts: Facts) -> list[str]:
    """Ops that took another time as they are when they were probed than in the job."""
    probes = facts.run.probes
    return [unit.op for unit in units(facts) if _is_off(facts, unit, probes)] if probes is not None else []


def _is_off(facts: WorkFacts, unit: Unit, probes: Probes) -> bool:
    """Whether the op took half the time, or twice, when it was probed: it was not run as the job does."""
    before = probes.of(unit.op, unit.inputs, as_is(facts, unit))
    return before is not None and not MAJORITY_SHARE <= before / _now_ns(facts, unit) <= 1 / MAJORITY_SHARE


def _standing(found: list[Unit], made: Made) -> list[Unit]:
    """Without the products of attention that is written out, where a fused kernel takes their place."""
    if "sdpa" not in made:
        return [unit for unit in found if unit.kind != "attention"]
    gone = [unit.rows for unit in found if unit.kind == "attention"]
    rows = np.concatenate(gone) if gone else np.zeros(0, np.int64)
    return [unit for unit in found if unit.kind == "attention" or not np.isin(unit.rows, rows).any()]


def _each_ns(facts: WorkFacts, unit: Unit, made: Made, probes: Probes) -> float | None:
    """How long one call takes with the fixes made; None: it stays as it is, or nobody probed it."""
    now, then = as_is(facts, unit), variant(facts, unit, made)
    after = probes.of(unit.op, unit.inputs, then)
    if then == now or after is None:
        return None
    before = probes.of(unit.op, unit.inputs, now)
    ratio = 1.0 if before is None or _is_off(facts, unit, probes) else _now_ns(facts, unit) / before
    return after * ratio + _beside(facts, unit, made)


def _now_ns(facts: StepFacts, unit: Unit) -> float:
    """What one call takes in the trace."""
    return max(float(facts.timeline.events.duration[unit.rows].sum()) / unit.calls, 1.0)


def _beside(facts: WorkFacts, unit: Unit, made: Made) -> float:
    """What comes with a product as a fix runs it: the cast of a weight that autocast puts beside it, which
    compiled code folds in; the copies that a compiler pads it with."""
    if unit.kind not in ("product", "conv"):
        return 0.0
    at = int(np.flatnonzero(facts.kernels.row == unit.rows[0])[0])
    atom = np.flatnonzero(facts.atoms.index == at)[:1]
    if made & COMPILERS:
        pads = "pad-shapes" not in made and np.isin(atom, facts.atoms.of("misaligned-shapes")).any()
        return float(padding_ns(facts, atom)[0]) if pads else 0.0
    return float(cast_ns(facts, atom)[0]) if unit.wide and made & NARROW.keys() else 0.0
