"""Attention that is computed for positions which its mask leaves out.

A fused kernel that is given a mask computes every score and adds the mask to it, whatever the mask says.
How much the mask lets through is looked at right before the call.
"""

from __future__ import annotations

import numpy as np

from findwall.dataflow.linking import Flow, judged
from findwall.dataflow.row_ops import ALL
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.dataflow import MASK
from findwall.model.intervals import F64

ATTENTION = "aten::scaled_dot_product_attention"


def under_masks(flow: Flow) -> tuple[F64, F64]:
    """For each row of what was observed, of an attention whose mask leaves most out: the share of blocks of
    positions that have any which it lets through, and the share of positions."""
    observed, heads = flow.observed, judged(flow)
    calls = np.array([head for head in heads.tolist() if _name(flow, head) == ATTENTION], np.int64)
    blocks, through = np.full(len(observed), ALL), np.full(len(observed), ALL)
    for at, name in enumerate(observed.names):
        if not name.startswith(MASK):
            continue
        positions, in_blocks = (_share(one) for one in name.removeprefix(MASK).split(" "))
        if in_blocks >= MAJORITY_SHARE:
            continue
        for row in np.flatnonzero(observed.name == at).tolist():
            call = calls[calls > row][:1]
            blocks[call], through[call] = in_blocks, positions
    return blocks, through


def masks_seen(names: list[str]) -> bool:
    """Whether any mask was looked at."""
    return any(name.startswith(MASK) for name in names)


def _name(flow: Flow, head: int) -> str:
    return flow.observed.names[int(flow.observed.name[head])]


def _share(told: str) -> float:
    some, _, every = told.partition("/")
    return int(some) / max(int(every), 1)
