"""How the ranks are laid out: which share a machine, and which are one stage of a pipeline.

Ranks of one machine share its clock to the microsecond; clocks of two machines differ by more. Stages are
told by who sends to whom: the first only sends, each other one is as many sends away from it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.intervals import I64
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.played.all_rows import AllRows
from findwall.ranks.played.clocks import Clocks
from findwall.ranks.played.matching import TOGETHER_NS

OF_RESIDUAL = 10.0  # times what the ends disagree by: further apart are two clocks. Chosen by hand.


class Layout(msgspec.Struct, frozen=True):
    """For each rank its node and stage; all nought where they cannot be told apart."""

    node: I64
    stage: I64
    nodes_known: bool = False  # whether one node for all is known to be one

    @property
    def nodes(self) -> int:
        return int(self.node.max(initial=0)) + 1

    @property
    def stages(self) -> int:
        return int(self.stage.max(initial=0)) + 1


def lay_out(summaries: list[RankSummary], rows: AllRows, clocks: Clocks, meeting: I64) -> Layout:
    node, known = _nodes(summaries, rows, clocks)
    return Layout(node, _stages(rows, meeting), known)


def _nodes(summaries: list[RankSummary], rows: AllRows, clocks: Clocks) -> tuple[I64, bool]:
    """And whether they are known."""
    names = [one.node for one in summaries]
    if all(names):
        _, found = np.unique(names, return_inverse=True)
        return np.asarray(found, np.int64), True
    if any(one.by_host for one in summaries):  # their ends are as far apart as processes wait for a core
        return np.zeros(rows.ranks, np.int64), False
    order = np.argsort(rows.numbers, kind="stable")
    apart = max(TOGETHER_NS, OF_RESIDUAL * clocks.unsure_ns)
    other = np.abs(np.diff(clocks.offset[order])) > apart
    node = np.zeros(rows.ranks, np.int64)
    node[order] = np.concatenate([[0], np.cumsum(other)])
    alone = bool(np.bincount(node).min() < 2)  # a rank with a clock of its own is no machine
    if alone:
        return np.zeros_like(node), False
    return node, bool(node.any()) or _fits_one(summaries)


def _fits_one(summaries: list[RankSummary]) -> bool:
    """Whether the whole job has no more ranks than the machine has GPUs. One clock alone proves nothing:
    machines of a cluster may keep time to the microsecond."""
    return all(one.world_size is not None and one.world_size <= one.gpus for one in summaries)


def _stages(rows: AllRows, meeting: I64) -> I64:
    """Nought for all where no rank sends before it receives."""
    stage = np.full(rows.ranks, -1, np.int64)
    pairs = np.flatnonzero((rows.sends != 0) & (meeting >= 0))
    if len(pairs) == 0:
        return np.zeros(rows.ranks, np.int64)
    stage[_send_first(rows, pairs)] = 0
    ends = _ends_of_pairs(rows, meeting, pairs)
    while True:
        reached = (stage[ends[:, 0]] >= 0) & (stage[ends[:, 1]] < 0)
        if not reached.any() and not _with_their_group(rows, stage):
            break
        stage[ends[reached, 1]] = stage[ends[reached, 0]] + 1
    whole = (stage[np.unique(rows.rank)] >= 0).all() and stage.max() > 0
    return np.maximum(stage, 0) if whole else np.zeros(rows.ranks, np.int64)


def _send_first(rows: AllRows, pairs: I64) -> I64:
    """Ranks that begin most of their steps with a send: a row may be missing."""
    keys = rows.rank[pairs] * (int(rows.step.max()) + 2) + rows.step[pairs] + 1
    _, at = np.unique(keys, return_index=True)
    first = pairs[at]
    sends = np.bincount(rows.rank[first], rows.sends[first] > 0, minlength=rows.ranks)
    every = np.bincount(rows.rank[first], minlength=rows.ranks)
    return np.flatnonzero(sends > MAJORITY_SHARE * np.maximum(every, 1))


def _with_their_group(rows: AllRows, stage: I64) -> bool:
    """A rank that no chain leads to is of the stage that all others of one of its groups are of."""
    found = False
    for group in np.unique(rows.group[rows.sends == 0]).tolist():
        members = np.unique(rows.rank[rows.group == group])
        known = stage[members][stage[members] >= 0]
        lost = members[stage[members] < 0]
        if len(lost) and len(known) > 1 and (known == known[0]).all() and len(members) < len(stage):
            stage[lost] = known[0]
            found = True
    return found


def _ends_of_pairs(rows: AllRows, meeting: I64, pairs: I64) -> I64:
    """Ranks that send to each other, both ways round: shape (pairs, 2)."""
    order = pairs[np.argsort(meeting[pairs], kind="stable")]
    same = np.flatnonzero(meeting[order[1:]] == meeting[order[:-1]])
    both = np.stack([rows.rank[order[same]], rows.rank[order[same + 1]]], axis=1)
    found: I64 = np.unique(np.concatenate([both, both[:, ::-1]]).reshape(-1, 2), axis=0)
    return found
