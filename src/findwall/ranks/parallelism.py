"""How a job is spread over its ranks: what each group is for, and what a pipeline's bubble should be.

By what the job calls it; else by what it sends; else by its strides: launchers give neighbouring ranks to
tensor parallelism, which talks most, and spread data parallelism over what is left.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from findwall.machine.link_table import bus_share
from findwall.model.answers.ranks_answer import GroupRow, Role, ToldBy
from findwall.model.events import ProcessGroup
from findwall.model.intervals import I64
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.layout import Layout
from findwall.ranks.played.all_rows import PAIR, AllRows
from findwall.ranks.played.ranks_job import RanksJob
from findwall.ranks.stage_work import EXCHANGE

_WORDS: dict[Role, frozenset[str]] = {
    "data": frozenset({"dp", "ddp", "fsdp", "hsdp", "data", "zero", "replicate"}),
    "tensor": frozenset({"tp", "tensor"}),
    "pipeline": frozenset({"pp", "pipeline", "pipe"}),
    "expert": frozenset({"ep", "expert", "moe"}),
    "context": frozenset({"cp", "context", "ulysses"}),
}
# A name of two: gradients are reduced over whatever holds the same weights; experts' tensors are tensors.
_FIRST: tuple[tuple[Role, Role], ...] = (("data", "context"), ("data", "expert"), ("tensor", "expert"))
EXPERTS = re.compile(r"(?:^|::|_)(?:dispatch|combine)(?:$|<|_)", re.IGNORECASE)
REDUCTIONS = frozenset({"all_reduce", "reduce_scatter", "reduce_scatter_tensor"})
BESIDE_REDUCTIONS = frozenset({"broadcast", "all_gather", "all_gather_into_tensor", "barrier"})
GROUPS_LISTED = 8


class Group(msgspec.Struct, frozen=True):
    """One group, as far as its ranks are here."""

    name: str
    here: I64  # places of the ranks
    rows: I64
    size: int | None
    stride: int | None
    role: Role | None = None
    told_by: ToldBy | None = None


def role_of(description: str) -> Role | None:
    """By the words in it; None where it says nothing, or two things."""
    words = set(re.split(r"[^a-z]+", description.lower()))
    found = {role for role, known in _WORDS.items() if words & known}
    for first, other in _FIRST:
        if found == {first, other}:
            return first
    return found.pop() if len(found) == 1 else None


def groups_of(summaries: list[RankSummary], job: RanksJob, layout: Layout) -> list[Group]:
    """All that communicate here, with what they are for."""
    rows = job.rows
    told = {one.name: one for summary in summaries for one in summary.groups}
    members = {label.group: label.members for one in summaries for label in one.labels if label.members > 1}
    world = max((one.world_size or 0 for one in summaries), default=0)
    order = np.argsort(rows.group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(rows.group[order])) + 1) if len(order) else []
    found = [_group(rows, part, told, members, world) for part in parts]
    return _by_strides([_by_traffic(one, rows, summaries, layout) for one in found], rows)


def _group(
    rows: AllRows, mine: I64, told: dict[str, ProcessGroup], members: dict[str, int], world: int
) -> Group:
    name = rows.groups[int(rows.group[mine[0]])]
    here = np.unique(rows.rank[mine])
    said = told.get(name)
    size = 2 if _is_pair(rows, mine) else members.get(name, -1)
    size = size if size > 1 or said is None else said.size
    if size < 2 and len(here) == world and world > 1:  # no group has more ranks than the job
        size = world
    stride = said.stride if said is not None and said.stride else _stride(rows, here, size)
    role = role_of(said.description) if said is not None else role_of(name)
    return Group(name, here, mine, size if size > 1 else None, stride, role, "name" if role else None)


def _is_pair(rows: AllRows, mine: I64) -> bool:
    return bool((rows.sends[mine] != 0).all())


def _stride(rows: AllRows, here: I64, size: int) -> int | None:
    """Of the numbers of its ranks, where all of them are here and evenly apart."""
    apart = np.unique(np.diff(np.sort(np.array(rows.numbers)[here])))
    return int(apart[0]) if len(here) == size and len(apart) == 1 else None


def _by_traffic(group: Group, rows: AllRows, summaries: list[RankSummary], layout: Layout) -> Group:
    if group.role is not None:
        return group
    kinds = {rows.kinds[at] for at in np.unique(rows.kind[group.rows]).tolist()}
    if layout.stages > 1 and PAIR in kinds and len(np.unique(layout.stage[group.here])) > 1:
        return msgspec.structs.replace(group, role="pipeline", told_by="traffic")
    if any(EXPERTS.search(kind) for kind in kinds):
        return msgspec.structs.replace(group, role="expert", told_by="traffic")
    wrapped = any(one.data_parallel for one in summaries)
    only = kinds <= REDUCTIONS | BESIDE_REDUCTIONS
    if (
        wrapped
        and only
        and kinds & REDUCTIONS
        and group.size == max(one.world_size or 0 for one in summaries)
    ):
        return msgspec.structs.replace(group, role="data", told_by="traffic")
    return group


def _by_strides(groups: list[Group], rows: AllRows) -> list[Group]:
    """Unnamed groups that cut the ranks two ways: neighbours that talk more often, and those across them."""
    left = [one for one in groups if one.role is None and one.size and one.stride]
    near = {one.size for one in left if one.stride == 1}
    if len(near) != 1 or any(one.told_by for one in groups if one.role in ("data", "tensor")):
        return groups
    size = near.pop()
    across = [one for one in left if one.stride == size]
    often = _calls(rows, [one for one in left if one.stride == 1])
    if not across or often <= _calls(rows, across):
        return groups
    names: dict[str, Role] = {one.name: "tensor" for one in left if one.stride == 1}
    names |= {one.name: "data" for one in across}
    return [
        msgspec.structs.replace(one, role=names[one.name], told_by="strides") if one.name in names else one
        for one in groups
    ]


def _calls(rows: AllRows, groups: list[Group]) -> float:
    """Of one of their ranks."""
    return sum(len(one.rows) for one in groups) / max(sum(len(one.here) for one in groups), 1)


def group_rows(groups: list[Group], job: RanksJob, layout: Layout) -> list[GroupRow]:
    """Groups alike in one row, the one that sends most first."""
    alike: dict[tuple[object, ...], list[Group]] = {}
    for one in groups:
        if one.size is not None or one.role is not None:
            alike.setdefault((one.role, one.told_by, one.size, one.stride), []).append(one)
    found = [_row(same, job, layout) for same in alike.values()]
    return sorted(found, key=lambda one: (-(one.sent_bytes or 0.0), -one.calls))[:GROUPS_LISTED]


def _row(alike: list[Group], job: RanksJob, layout: Layout) -> GroupRow:
    rows, first = job.rows, alike[0]
    mine = np.concatenate([one.rows for one in alike])
    mine = mine[np.isin(job.step_of[job.schedule.meeting[mine]], job.steps)]
    a_rank_and_step = max(len(np.unique(rows.rank[mine])) * len(job.steps), 1)
    share = np.array([bus_share(kind, first.size or 0) or np.nan for kind in rows.kinds])
    sent = np.where(rows.sends[mine] < 0, 0.0, rows.nbytes[mine] * share[rows.kind[mine]])
    known = len(mine) > 0 and bool((rows.nbytes[mine] >= 0).all()) and not np.isnan(sent).any()
    return GroupRow(
        role=first.role,
        told_by=first.told_by,
        groups=len(alike),
        ranks=first.size,
        stride=first.stride,
        across_nodes=_across(alike, layout),
        calls=len(mine) / a_rank_and_step,
        sent_bytes=float(sent.sum()) / a_rank_and_step if known else None,
    )


def _across(alike: list[Group], layout: Layout) -> bool | None:
    """Whether one of them has ranks on several nodes; None where that is not known."""
    if not layout.nodes_known:
        return None
    if any(len(np.unique(layout.node[one.here])) > 1 for one in alike):
        return True
    return False if all(len(one.here) == one.size for one in alike) else None


# -- pipelines --------------------------------------------------------------------------------------

FEWEST_STAGES = 3  # of two nobody can tell an interleaved schedule from a plain one: both are neighbours


def micro_batches(job: RanksJob, layout: Layout) -> int | None:
    """What the first stage sends in a step. None where the last sends to it (stages are interleaved), or
    where its ranks or steps differ."""
    if layout.stages < FEWEST_STAGES:
        return None
    rows = job.rows
    sends = rows.sends > 0
    sends |= np.array([kind == EXCHANGE for kind in rows.kinds], bool)[rows.kind]
    step = job.step_of[job.schedule.meeting]
    if _is_ring(job, layout):
        return None
    first = np.flatnonzero(layout.stage == 0)
    mine = np.flatnonzero(sends & np.isin(rows.rank, first) & np.isin(step, job.steps))
    counts = np.zeros((rows.ranks, int(job.steps.max(initial=0)) + 1), np.int64)
    np.add.at(counts, (rows.rank[mine], step[mine]), 1)
    found = np.unique(counts[np.ix_(first, job.steps)])
    return int(found[0]) if len(found) == 1 and found[0] > 0 else None


def _is_ring(job: RanksJob, layout: Layout) -> bool:
    """Whether the first and the last stage send to each other."""
    rows, meeting = job.rows, job.schedule.meeting
    pairs = np.flatnonzero((rows.sends != 0) & (job.members[meeting] == 2))
    low = np.full(len(job.members), layout.stages, np.int64)
    high = np.full(len(job.members), -1, np.int64)
    np.minimum.at(low, meeting[pairs], layout.stage[rows.rank[pairs]])
    np.maximum.at(high, meeting[pairs], layout.stage[rows.rank[pairs]])
    return bool(((low == 0) & (high == layout.stages - 1)).any())


def even_bubble(stages: int, batches: int) -> float:
    """The share of the step in which a stage fills and drains, where all stages are alike."""
    return (stages - 1) / (batches + stages - 1)
