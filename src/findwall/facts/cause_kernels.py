"""What carries a cause on the device: its kernels merged and named, with their shapes and rates.

Every figure is a step's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from findwall.facts.facts import Facts
from findwall.facts.op_shapes import shapes_text, tensors_of
from findwall.facts.step_traits import on_cores
from findwall.facts.user_lines import line_of
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import EVIDENCE_ROWS, Claim, Evidence, Figure, known, lines, listed
from findwall.model.intervals import I64
from findwall.model.short_kernel_names import bare, short_kernel
from findwall.step.call_names import collective_name
from findwall.units import ms
from findwall.work.work_facts import WorkFacts

# Chosen by hand, not calibrated.
CARRIERS_SEARCHED = 12  # longest first: what is named in a sentence is found among these
NAMED_CLASSES = {"attention", "conv", "matmul"}  # others are just kernels
SECTOR_BYTES = 32  # the least that memory hands over at once
TIES_KEPT = 16  # times the carriers asked for: where many take equally long, names decide among so many


class Carrier(msgspec.Struct, frozen=True):
    """Device rows of one cause with the same kernel, op and shapes."""

    kernel: str
    op: str | None
    op_row: int  # of the longest of them; -1 unknown
    atom: int  # the longest of them
    ms: float
    calls: float
    floor_ms: float | None  # what no fix of the cause takes away
    least_ms: float | None  # what these kernels take at the ceiling, doing what they do

    @property
    def reached(self) -> float | None:
        """Share of the ceiling."""
        return None if self.least_ms is None or self.ms <= 0 else min(self.least_ms / self.ms, 1.0)


def carriers(facts: Facts, cause: str, limit: int = EVIDENCE_ROWS) -> list[Carrier]:
    """The kernels that carry a cause, longest first."""
    atoms = facts.atoms.of(cause)
    if len(atoms) == 0:
        return []
    group, width = _groups(facts, atoms)
    own = facts.own[atoms]
    total = np.bincount(group, own, minlength=width)
    calls = np.bincount(group, facts.weight[atoms], minlength=width) / facts.steps.count
    with np.errstate(invalid="ignore", divide="ignore"):
        floor = facts.atoms.floor[atoms] * (own / facts.atoms.own[atoms])
    floors = np.bincount(group, floor, minlength=width)
    index = facts.atoms.index[atoms]
    at_ceiling = facts.kernels.floor[index] * own / np.maximum(facts.kernels.duration[index], 1)
    least = np.fmax(np.bincount(group, at_ceiling, minlength=width), floors)
    order = np.lexsort((-own, group))
    longest = atoms[order[np.searchsorted(group[order], np.arange(width))]]
    found = [
        Carrier(
            facts.kernel_name(atom),
            facts.op_name(atom),
            facts.op_row(atom),
            atom,
            ms(float(total[at])),
            float(calls[at]),
            _known_ms(facts, floors[at]),
            _known_ms(facts, least[at]),
        )
        for at, atom in _longest_groups(total, longest, limit)
    ]
    # Equal times are told apart by name: the order must not depend on the file's order.
    return sorted(found, key=lambda one: (-one.ms, one.kernel, one.op or ""))[:limit]


def atoms_of_carrier(facts: WorkFacts, cause: str, carrier: Carrier) -> I64:
    """The device rows that it is made of."""
    atoms = facts.atoms.of(cause)
    group, _ = _groups(facts, atoms)
    mine: I64 = atoms[group == group[np.flatnonzero(atoms == carrier.atom)[0]]]
    return mine


def _known_ms(facts: WorkFacts, ns: float) -> float | None:
    return None if np.isnan(ns) or not facts.ceilings.known else ms(float(ns))


def _longest_groups(total: np.ndarray, longest: np.ndarray, limit: int) -> list[tuple[int, int]]:
    least = np.sort(total)[::-1][min(limit, len(total)) - 1]
    wanted = np.flatnonzero((total >= least) & (total > 0))[: TIES_KEPT * limit]
    return [(at, int(longest[at])) for at in wanted.tolist()]


def _groups(facts: WorkFacts, atoms: np.ndarray) -> tuple[np.ndarray, int]:
    """A number for each distinct (kernel name, op name, recorded inputs)."""
    events = facts.timeline.events
    index = facts.atoms.index[atoms]
    op = facts.kernels.op[index]
    op_name = np.where(op >= 0, events.name[np.maximum(op, 0)], -1).astype(np.int64) + 1
    inputs = np.where(op >= 0, events.inputs[np.maximum(op, 0)], -1).astype(np.int64) + 1
    key = events.name[facts.kernels.row[index]].astype(np.int64)
    key = (key * (len(facts.timeline.names) + 1) + op_name) * (
        len(facts.timeline.details.inputs) + 1
    ) + inputs
    distinct, group = np.unique(key, return_inverse=True)
    return group.reshape(-1), len(distinct)


def name_carrier(facts: WorkFacts, carrier: Carrier) -> str:
    """ "aten::addmm [8192×768]·[768×50257] bf16 (ampere_bf16_s1688gemm…align1)"."""
    kernel = short_kernel(carrier.kernel)
    if facts.kernel_class(carrier.atom) == "collective":
        return f"{_doing(facts, carrier)} ({kernel})"
    if carrier.op is None:
        return kernel
    described = f"{carrier.op} {shapes_text(facts, carrier.op_row)}".strip()
    return described if on_cores(facts) else f"{described} ({kernel})"


def kernel_evidence(facts: Facts, cause: str, of: str = "") -> list[Evidence]:
    """The three longest carriers; `of` says what `reached` is a share of, empty to leave it out."""
    found = []
    for carrier in carriers(facts, cause):
        figures: dict[str, Figure] = {"calls": carrier.calls, "ms": carrier.ms}
        if of and carrier.reached is not None:
            figures |= {"reached_share": carrier.reached, "of": of}
        found.append(as_evidence(facts, carrier, "evidence/kernel", figures))
    return found


def as_evidence(
    facts: WorkFacts, carrier: Carrier, what: str, figures: dict[str, Figure], parts: Sequence[Claim] = ()
) -> Evidence:
    """A carrier with what is said of it: its kernel, op, shapes and line."""
    line = line_of(facts, carrier.op_row)
    claim = Claim(what, {"on_cores": on_cores(facts), **figures}, carrier_names(facts, carrier), lines(line))
    return Evidence("", carrier.kernel, carrier.op, line, carrier.ms, claim.with_parts(*parts))


def carrier_names(facts: WorkFacts, carrier: Carrier) -> dict[str, str]:
    """What it is called: a collective by its own name, else its op with its shapes, and its kernel."""
    if facts.kernel_class(carrier.atom) == "collective":
        return {"collective": _doing(facts, carrier), "kernel": carrier.kernel}
    if carrier.op is None:
        return {"kernel": carrier.kernel}
    return known(op=carrier.op, shapes=shapes_text(facts, carrier.op_row), kernel=carrier.kernel)


def _doing(facts: WorkFacts, carrier: Carrier) -> str:
    """What a carrier does, in one name."""
    if facts.kernel_class(carrier.atom) == "collective":
        row = int(facts.kernels.row[facts.atoms.index[carrier.atom]])
        return collective_name(facts.timeline, facts.links, row)
    return carrier.op or short_kernel(carrier.kernel)


def work_classes(facts: Facts, cause: str) -> dict[str, Figure]:
    """The classes of the longest carriers, where all of them have a word for it."""
    kinds = {facts.kernel_class(carrier.atom) for carrier in carriers(facts, cause)}
    return dict.fromkeys(sorted(kinds), True) if kinds <= NAMED_CLASSES else {}


def carrying(facts: Facts, cause: str, most: int = 3) -> dict[str, str]:
    """The ops that carry a cause, the longest first: op1, op2; where none is known, kernels."""
    seen: dict[str, float] = {}
    full: dict[str, tuple[str, str]] = {}
    for carrier in carriers(facts, cause, CARRIERS_SEARCHED):
        name = bare(_doing(facts, carrier))
        seen[name] = seen.get(name, 0.0) + carrier.ms
        is_kernel = carrier.op is None and facts.kernel_class(carrier.atom) != "collective"
        full.setdefault(name, ("kernel", carrier.kernel) if is_kernel else ("op", _doing(facts, carrier)))
    longest = sorted(seen, key=lambda name: (-seen[name], name))[:most]
    return {f"{full[name][0]}{at}": full[name][1] for at, name in enumerate(longest, 1)}


def ops_named(facts: Facts, cause: str) -> str:
    """The same as text: "mul, add and tanh"."""
    named = carrying(facts, cause).items()
    return listed([bare(short_kernel(name) if key.startswith("kernel") else name) for key, name in named])


def reads_wide_rows(facts: Facts) -> bool:
    """Whether the longest gather or scatter moves rows as long as what memory hands over at once, so that no
    order of them wastes less. Unknown rows are not."""
    found = carriers(facts, "gather-scatter", 1)
    table = next(iter(tensors_of(facts, found[0].op_row)), None) if found else None
    if table is None or not table.dims:
        return False
    return (table.dims[-1] if len(table.dims) > 1 else 1) * table.size >= SECTOR_BYTES


# Ops and device rows that put values elsewhere in the order they have: no layout is changed.
_MOVES_ON = re.compile(r"^aten::(?:cat|stack|roll)$|^memcpy dtod", re.IGNORECASE)


def moves_on(facts: Facts) -> bool:
    """Whether most copies put values elsewhere in the order they have, as a history that moves on does."""
    found = carriers(facts, "layout-copies", CARRIERS_SEARCHED)
    moves = sum(one.ms for one in found if any(_MOVES_ON.match(name) for name in (one.op or "", one.kernel)))
    return moves > MAJORITY_SHARE * sum(one.ms for one in found)
