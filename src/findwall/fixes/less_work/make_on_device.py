"""Draw random numbers, and make tensors of constants, where they are needed: on the device.

What it does:
`torch.randn(shape).to(device)` draws every number on the host and copies all of them, in every step. The
device draws them in one pass over memory, and nothing is copied:

    torch.randn(shape, device=device)       # randn_like(x), torch.zeros(shape, device=device)

What numpy or `random` draws, sorts or selects on the host for the device has its like there too:

    torch.randperm(n, device=device)[:k]    # np.random.choice(n, k, replace=False), which shuffles all n
    torch.sort, torch.unique, torch.histc, torch.where, torch.searchsorted

When it does not help:
The numbers are few, or the copies are hidden behind other work.

Risk:
The device's generator draws other numbers from the same seed: results differ as from another seed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from findwall.facts.called_atoms import called_by
from findwall.facts.memory_copies import uploaded
from findwall.facts.user_lines import line_of, routines_called
from findwall.fixes import Claim, Facts, Figures, Fix, Outcome, Use, ideal, lines, no_use, step_ms
from findwall.fixes.refusals import ON_CORES
from findwall.model.catalogue import FAIR_PART, MENTION_SHARE
from findwall.model.intervals import I64
from findwall.replay.change import Change, Drop
from findwall.step.called_ops import head_of, heads_of
from findwall.step.step_facts import StepFacts
from findwall.units import ms
from findwall.work.op_arguments import Arguments, Tensor
from findwall.work.work_facts import WorkFacts

DRAWS = frozenset(
    f"aten::{name}"
    for name in ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "randperm", "multinomial")
)
FILLS = frozenset({"aten::fill_", "aten::zero_", "aten::arange", "aten::eye"})
LOOKS_BACK = 12  # heads: what is made for a step is made shortly before it is copied


def plain(torch: Any, x: Any) -> Any:
    """As it is written today, for noise as large as x."""
    return torch.randn(x.shape, dtype=x.dtype).to(x.device)


def cheaper(torch: Any, x: Any) -> Any:
    """The same distribution, drawn on the device."""
    return torch.randn_like(x)


class _Made(msgspec.Struct, frozen=True):
    """A tensor that the host makes and copies."""

    row: int  # of the copy
    maker: int  # host row
    tensor: Tensor
    drawn: bool  # at random
    makes_ns: float


def use(facts: Facts) -> Outcome:
    called = _by_routine(facts)
    if called is not None:
        return called
    found = _made(facts)
    if not found:
        return no_use("make-on-device/none")
    rows = np.array([one.row for one in found], np.int64)
    copied = float(facts.timeline.events.duration[rows].sum())
    spent = ms(copied + sum(one.makes_ns for one in found)) / facts.steps.count
    if spent <= MENTION_SHARE * step_ms(facts):
        return no_use("make-on-device/little", spent_ms=spent)
    largest = max(found, key=lambda one: one.tensor.elements)
    claim = Claim(
        "make-on-device/there",
        {
            "spent_ms": spent,
            "numbers": largest.tensor.elements,
            "copied_bytes": float(facts.timeline.events.nbytes[rows].sum()) / facts.steps.count,
            "drawn": largest.drawn,
        },
        places=lines(line_of(facts, largest.maker)),
    )
    # Of what the host does meanwhile a trace shows too little for a figure: with it gone, 16.0 ms became 2.0
    # where the replay of the same said 9.7 (H200). At best the copies are gone as well, not only the wait.
    return Use(claim, Change((Drop(rows),)) + ideal(facts, *FIX.moves))


def _by_routine(facts: Facts) -> Use | None:
    """The host stands on a line that calls a routine on arrays, or draws, and copies go to the device."""
    called, rows = routines_called(facts), uploaded(facts)
    waits = facts.spent_ms("host-work")
    if not called or waits <= FAIR_PART * step_ms(facts) or len(rows) == 0:
        return None
    first = called[0]
    figures: Figures = {"samples_share": first.share, "waits_ms": waits}
    claim = Claim(
        "make-on-device/routine",
        figures,
        {"function": first.function, "routine": first.routine},
        [first.place],
    )
    return Use(
        claim,
        Change((Drop(rows),)) + ideal(facts, *FIX.moves),
        ("host-work", "copy-exposed"),
        condition="result-goes-to-device",
    )


def _made(facts: WorkFacts) -> list[_Made]:
    heads = heads_of(facts)
    of = head_of(facts, heads)
    place = {int(row): at for at, row in enumerate(heads.tolist())}
    busy = set(of[facts.kernels.op[facts.kernels.op >= 0]].tolist())  # heads that launch something
    found = []
    for row in uploaded(facts).tolist():
        op = int(facts.links.op[row])
        tensor = Arguments(facts.timeline.inputs_of(op)).tensor(0) if op >= 0 else None
        at = place.get(int(of[op])) if op >= 0 else None
        if tensor is None or at is None or not tensor.dims:
            continue
        maker = _maker(facts, heads[max(at - LOOKS_BACK, 0) : at], tensor, busy)
        if maker is not None:
            made, drawn = maker
            length = float(facts.timeline.events.duration[made])
            found.append(_Made(row, made, tensor, drawn, length))
    return found


def _maker(facts: StepFacts, heads: I64, tensor: Tensor, busy: set[int]) -> tuple[int, bool] | None:
    """The last op before the copy that makes as large a tensor on the host, if nothing but that one touched
    such a tensor since: what a job fills from elsewhere is not the device's to make."""
    for row in reversed(heads.tolist()):
        inside = [row]
        for one in inside:
            inside += called_by(facts, one)
        names = {
            facts.timeline.name_of(one)
            for one in inside
            if (given := Arguments(facts.timeline.inputs_of(one)).tensor(0)) is not None
            and given.dims == tensor.dims
        }
        if names & DRAWS and row not in busy:
            return row, True
        if names & FILLS and row not in busy:
            return row, False
        if names:
            return None
    return None


FIX = Fix(("copy-exposed", "host-work"), "changes-numerics", use, (ON_CORES,))
