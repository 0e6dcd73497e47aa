"""Keep what a CPU job frees, instead of giving it back to the system and asking for it again.

What it does:
A large tensor that is freed goes back to the system, and the next one gets pages that the system must find
and clear, one by one, when an op first writes there. On cores no allocator of torch's stands between, as it
does for a GPU. The C library keeps what is freed if it is told so before the start:

    MALLOC_TRIM_THRESHOLD_=4294967295 MALLOC_MMAP_MAX_=0 python train.py

An allocator that keeps it by itself does the same: `LD_PRELOAD=libjemalloc.so` or `libtcmalloc.so`.

When it does not help:
The process is given few pages in a step: its tensors are small, or kept from step to step, or an allocator
keeps them already. Where results are written in place nothing is asked for at all.

Risk:
None for the results. The process holds the most memory that it ever had, as torch does on a GPU.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from findwall.apply.applying import Effect
from findwall.apply.registry import APPLIED, REGISTRY
from findwall.fixes import (
    Claim,
    Facts,
    Fix,
    Outcome,
    Use,
    cannot_tell,
    no_use,
    on_cores,
    rows_of,
    step_ms,
    unless,
)
from findwall.fixes.less_work.removed_work import causes_of
from findwall.model.catalogue import WORTH_IT
from findwall.patches.editor import Editor
from findwall.replay.change import Change, Scale
from findwall.units import NS_PER_MS, NS_PER_S, ms

# Whatever writes a large tensor for the first time waits for its pages.
MOVES = (
    "unfused-pointwise",
    "memory-roof",
    "layout-copies",
    "gather-scatter",
    "slow-kernels",
    "at-the-roof",
)
# What it takes at most to be given a page: 2.0 to 2.5 us on a virtual machine, where it is dearest.
PAGE_MS = 2.5e-3
# Of `mallopt`: how much may lie free at the end before it is given back, and how many blocks are asked for
# by themselves, each to go back alone.
TRIM_THRESHOLD, MMAP_MAX = -1, -4
MOST = 2**31 - 1


def use(facts: Facts) -> Outcome:
    cpu = facts.rank.telemetry.cpu
    if cpu is None or cpu.system_busy is None or cpu.faults is None:
        return cannot_tell("keep-freed-memory/uncounted")
    pages = cpu.faults * step_ms(facts) * NS_PER_MS / NS_PER_S
    spent = min(cpu.system_busy * step_ms(facts), pages * PAGE_MS)
    if spent < WORTH_IT * step_ms(facts):
        return no_use("keep-freed-memory/few", pages=pages, spent_ms=spent)
    best = _without(facts, spent)
    # Threads that share an op are given their pages side by side.
    shared = _without(facts, spent / max(cpu.own_busy or 1.0, 1.0))
    return Use(
        Claim("keep-freed-memory/found", {"pages": pages, "spent_ms": spent}),
        best,
        causes_of(facts, np.arange(len(facts.atoms.index)), MOVES),
        likely=lambda made: shared,
        may=(lambda made: best,),
        uncurved=True,
    )


def _without(facts: Facts, spent_ms: float) -> Change:
    """All that runs shorter by so much in all: which op is given how many pages nobody counts."""
    rows = np.unique(rows_of(facts, np.arange(len(facts.atoms.index))))
    left = max(1.0 - spent_ms / max(ms(float(facts.own.sum())), spent_ms), 0.0)
    return Change((Scale(rows, np.full(len(rows), left)),))


def apply(torch: Any, effect: Effect) -> None:
    """In the job's own process; what it has freed before is not fetched back."""
    keep = getattr(ctypes.CDLL(None), "mallopt", None)
    if keep is None or not (keep(TRIM_THRESHOLD, MOST) and keep(MMAP_MAX, 0)):
        effect.cannot("the C library here has no such setting")
        return
    REGISTRY.hold("keep-freed-memory", "libc: mallopt", None, past_end=APPLIED)
    effect.at("script")
    effect.saw("freed memory is kept (mallopt)")


def patch(editor: Editor) -> None:
    editor.file(editor.places("script")[0].spots[-1].file).before_imports(
        "import ctypes",
        "",
        f"ctypes.CDLL(None).mallopt({TRIM_THRESHOLD}, {MOST})  # what is freed is kept",
        f"ctypes.CDLL(None).mallopt({MMAP_MAX}, 0)",
    )


FIX = Fix(
    MOVES,
    "safe",
    use,
    (unless("keep-freed-memory/on-gpu", lambda facts: not on_cores(facts), obvious=True),),
    apply=apply,
    patch=patch,
    of_anything=True,
)
