"""Fourier transforms of a step: their kernels, and what was asked of them."""

from __future__ import annotations

import numpy as np

from findwall.model.catalogue import MENTION_SHARE
from findwall.model.intervals import I64
from findwall.step.step_facts import StepFacts
from findwall.work.op_arguments import Arguments
from findwall.work.op_families.fft import OPS, Transform, transform
from findwall.work.work_facts import WorkFacts

IMAGE_DIMS = 4  # batch, channels, height and width
_CHANNELS = 1  # the axis of an image's channels


def fourier_atoms(facts: WorkFacts) -> I64:
    """The transforms' own kernels."""
    mine = np.array([_short(name) in OPS for name in facts.timeline.names] or [False], bool)
    op = facts.kernels.op[facts.atoms.index]
    return np.flatnonzero((op >= 0) & mine[facts.timeline.events.name[np.maximum(op, 0)]])


def asked_of(facts: StepFacts, op: int) -> Transform | None:
    """None where that was not recorded."""
    try:
        return transform(_short(facts.timeline.name_of(op)), Arguments(facts.timeline.inputs_of(op)))
    except (IndexError, ValueError):
        return None


def transforms_images(facts: WorkFacts) -> bool:
    """Whether images are transformed along their sides: those that lie channels-last are turned for it."""
    atoms = fourier_atoms(facts)
    if float(facts.atoms.own[atoms].sum()) < MENTION_SHARE * float(facts.atoms.own.sum()):
        return False
    rows = {facts.op_row(atom) for atom in atoms.tolist()}
    return any(_on_image(facts, row) for row in rows)


def _on_image(facts: StepFacts, op: int) -> bool:
    arguments = Arguments(facts.timeline.inputs_of(op))
    x, axes = arguments.tensor(0), arguments.numbers(1)
    return x is not None and len(x.dims) >= IMAGE_DIMS and bool(axes) and _CHANNELS not in (axes or [])


def _short(name: str) -> str:
    return name.removeprefix("aten::")
