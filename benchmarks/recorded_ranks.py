"""Two recorded training jobs, operation by operation, as summaries of their ranks (`shared/ranks_jobs`).

Each operation has a start and a length. What computes is the rank's own; collectives, sends and receives
are waited for from start to end. Steps lie apart in the recording: here they follow each other, parted by a
barrier.

Two meetings are not recorded, and show as gaps that end together before the gradients of the layer norms are
reduced: the last stage averages its loss over all its ranks, and the stages of one pipeline can wait for each
other there (in AR the slow worker's do, in each step).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from findwall.model.intervals import I64, union
from findwall.model.summaries.rank_summary import GRAIN_NS, Label, Messages, RankSummary
from findwall.ranks.reduced.own_progress import OwnClock

NS_PER_US = 1000
WORLD = ("optimizer-clip-main-grad",)
SHARED_BY_STAGE = ("params-all-gather", "grads-reduce-scatter")
ENDS = ("embedding-grads-all-reduce",)
LAST_OF_OWN = "layernorm-grads-all-reduce"  # what the gaps come before
TOGETHER_NS, GAP_NS = 1_000_000, 10_000_000
PAIRS = ("forward-send", "forward-recv", "backward-send", "backward-recv")


def summaries_of(path: Path, steps: int | None = None) -> list[RankSummary]:
    """The ranks of a recorded job; the first so many steps of it."""
    table = dict(np.load(path))
    ops = [str(op) for op in table["ops"]]
    numbers = np.unique(table["step"])[:steps]
    start, past = table["start_us"] * NS_PER_US, (table["start_us"] + table["duration_us"]) * NS_PER_US
    begins: I64 = np.zeros(len(numbers) + 1, np.int64)
    for at, number in enumerate(numbers):
        mine = table["step"] == number
        shift = begins[at] - start[mine].min()
        start[mine] += shift
        past[mine] += shift
        begins[at + 1] = past[mine].max()
    gaps = _unrecorded(table, ops, start, past, numbers)
    found = []
    for rank in np.unique(table["rank"]).tolist():
        rows = np.flatnonzero((table["rank"] == rank) & np.isin(table["step"], numbers))
        found.append(_summary(rank, table, ops, rows, start, past, begins, numbers, gaps))
    return found


def _label(op: str, stage: int, dp: int) -> Label | None:
    """None where the rank works by itself."""
    if op in WORLD:
        return Label("all_reduce", "world")
    if op in SHARED_BY_STAGE:
        return Label(op, f"stage{stage}")
    if op in ENDS:
        return Label("all_reduce", f"ends{dp}")
    if op in PAIRS:
        below = stage if op in ("forward-send", "backward-recv") else stage - 1
        return Label(op.partition("-")[2], f"pair{below}-{below + 1} of {dp}")
    return None


Gaps = dict[int, list[tuple[int, int, Label, int]]]  # of each rank: start, end, what it is, the step


def _unrecorded(table: dict[str, np.ndarray], ops: list[str], start: I64, past: I64, numbers: I64) -> Gaps:
    found: Gaps = {}
    last_stage = int(table["stage"].max())
    for step, number in enumerate(numbers):
        mine = np.flatnonzero(table["step"] == number)
        opens, closes, stage, dp = {}, {}, {}, {}
        for rank in np.unique(table["rank"][mine]).tolist():
            own = mine[table["rank"][mine] == rank]
            begin = int(start[own[table["op"][own] == ops.index(LAST_OF_OWN)]].min())
            closes[rank], opens[rank] = begin, int(past[own[past[own] <= begin]].max())
            stage[rank], dp[rank] = int(table["stage"][own[0]]), int(table["dp"][own[0]])
        averaging = [rank for rank in closes if stage[rank] == last_stage]
        averaged = min(closes[rank] for rank in averaging)
        for rank in averaging:
            if opens[rank] < averaged:
                label = Label("all_reduce", "loss")
                found.setdefault(rank, []).append((opens[rank], averaged, label, step))
                opens[rank] = averaged
        for rank in closes:
            like = [other for other in closes if abs(closes[other] - closes[rank]) <= TOGETHER_NS]
            same = [other for other in like if dp[other] == dp[rank]]
            if len({stage[other] for other in same}) > 1 and closes[rank] - opens[rank] > GAP_NS:
                label = Label("barrier", f"pipeline{dp[rank]}")
                found.setdefault(rank, []).append((opens[rank], closes[rank], label, step))
    return found


def _summary(
    rank: int,
    table: dict[str, np.ndarray],
    ops: list[str],
    rows: I64,
    start: I64,
    past: I64,
    begins: I64,
    numbers: I64,
    gaps: Gaps,
) -> RankSummary:
    known: dict[Label, int] = {}
    found: dict[tuple[int, int], tuple[Label, int]] = {}
    for row in rows.tolist():
        label = _label(ops[table["op"][row]], int(table["stage"][row]), int(table["dp"][row]))
        if label is None:
            continue
        at = (int(start[row]), int(past[row]))
        if at in found:  # a send and a receive that were issued as one
            label = Label("exchange", label.group)
        found[at] = (label, int(np.searchsorted(numbers, table["step"][row])))
    found |= {(begin, end): (label, step) for begin, end, label, step in gaps.get(rank, [])}
    last = {step: max(past[rows[table["step"][rows] == number]]) for step, number in enumerate(numbers)}
    barriers = [(int(last[at - 1]) if at else 0, int(begins[at])) for at in range(len(begins))]
    for at, when in enumerate(barriers):
        found[when] = (Label("barrier", "world"), max(at - 1, 0))
    whens = sorted(found)
    columns = np.array(whens, np.int64).reshape(-1, 2)
    which = [known.setdefault(found[when][0], len(known)) for when in whens]
    own = OwnClock(0, union(columns[:, 0], columns[:, 1]))
    ready, left = own.at(columns[:, 0]), own.at(columns[:, 1])
    nothing = np.zeros(len(whens), np.int64)
    messages = Messages(
        label=np.array(which, np.int64),
        step=np.array([found[when][1] for when in whens], np.int64),
        launched=columns[:, 0],
        start=columns[:, 0],
        end=columns[:, 1],
        ready=ready,
        left=left,
        since=nothing,
        hosted=nothing,
        held=nothing - GRAIN_NS,
        joins=np.ones(len(whens), np.int64),
        idle=nothing,
        device=ready,
        copy=nothing,
        loader=nothing,
        gc=nothing,
    )
    return RankSummary(messages, tuple(known), rank, path=f"rank{rank}", steps=len(numbers))
