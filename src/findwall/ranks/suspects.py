"""Who the others wait for: a rank, a node, a stage, a link; or nobody.

A name has to pass two tests over steps: its work takes longer than its peers' more surely than chance would
have it, as one of so many who might have been last; and the replay without that saves more than it varies
by, and enough to be a wall. What is late in one step alone is somebody else in the next.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.catalogue import MAJORITY_SHARE, NEARLY_ALL, WORTH_IT
from findwall.model.intervals import F64, I64
from findwall.ranks.chance import chance_of
from findwall.ranks.layout import Layout
from findwall.ranks.peers import Peers, column_medians
from findwall.ranks.played.matching import OUTLYING
from findwall.ranks.played.ranks_job import RanksJob
from findwall.ranks.stage_work import stage_times
from findwall.ranks.what_ifs import Question, What, ask

# Of jobs in which nobody is late so many may have somebody who seems to be, before it is asked what that
# would save: most of them save nothing. Two steps, the fewest that tell anything, can be no surer. Chosen
# by hand.
CHANCE_ALLOWED = 0.05
ASKED_ABOUT = 8  # of each sort, those that are longest behind their peers: a replay each. Chosen by hand.
# A smaller unit is named before a larger one that it belongs to.
SIZES: tuple[What, ...] = ("rank", "link", "node", "stage")


class Candidate(msgspec.Struct, frozen=True):
    question: Question
    excess: F64  # over its peers, ns in each step
    chance: float | None  # that this is nothing, one of all that could have been last; None: too few steps


class Found(msgspec.Struct, frozen=True):
    """All who were asked about, the one that costs most first."""

    candidates: tuple[Candidate, ...]
    saved: F64  # (candidates, steps), ns
    step: float  # ns, as it is played
    level: float  # ns a step, saved if no rank took longer than its peers usually do
    named: int  # which candidate; -1 nobody

    @property
    def pattern(self) -> str:
        if self.named >= 0:
            return "one"
        return "uneven" if self.level >= WORTH_IT * self.step else "even"


def find_suspects(job: RanksJob, peers: list[Peers], layout: Layout) -> Found:
    candidates = [
        *_ranks(job, peers),
        *_nodes(job, peers, layout),
        *_stages(job, layout),
        *_links(job),
    ]
    everyone = Question("all", -1, ranks=np.arange(job.rows.ranks))
    answers = ask(job, peers, layout, [everyone, *(one.question for one in candidates)])
    step = float(np.nanmean(answers.now))
    saved = answers.saved[1:]
    for at, one in enumerate(candidates):
        saved[at, np.isnan(one.excess)] = np.nan
    order = np.argsort(-np.nanmean(saved, axis=1), kind="stable") if len(saved) else np.zeros(0, np.int64)
    ordered = tuple(candidates[at] for at in order.tolist())
    found = Found(ordered, saved[order], step, max(float(np.nanmean(answers.saved[0])), 0.0), -1)
    unsure = OUTLYING * float(np.nan_to_num(job.clocks.residual_ns))
    return msgspec.structs.replace(found, named=_named(found, unsure))


def _named(found: Found, unsure: float) -> int:
    """The smallest unit that saves about as much as the largest saving of all that no chance explains; none
    by less than the ranks' ends disagree by (`unsure`, ns)."""
    sure = [
        at
        for at, one in enumerate(found.candidates)
        if one.chance is not None
        and one.chance <= CHANCE_ALLOWED
        and chance_of(found.saved[at]) <= CHANCE_ALLOWED
        and np.nanmean(found.saved[at]) >= WORTH_IT * found.step
        and np.nanmean(one.excess) > unsure
    ]
    if not sure:
        return -1
    most = max(float(np.nanmean(found.saved[at])) for at in sure)
    enough = [at for at in sure if np.nanmean(found.saved[at]) >= NEARLY_ALL * most]
    return min(enough, key=lambda at: (SIZES.index(found.candidates[at].question.what), at))


def _candidates(job: RanksJob, questions: list[Question], excess: F64) -> list[Candidate]:
    """Those that are furthest behind, each with the chance that one of so many would be."""
    excess = np.where(job.counts, excess, np.nan)
    known = np.maximum((~np.isnan(excess)).sum(axis=1), 1)
    mean: F64 = np.nansum(excess, axis=1) / known
    furthest = np.argsort(-mean, kind="stable")[:ASKED_ABOUT].tolist()
    several = int(job.counts.sum()) > 1
    return [
        Candidate(
            questions[at],
            excess[at],
            min(chance_of(excess[at]) * len(questions), 1.0) if several else None,
        )
        for at in furthest
        if mean[at] > 0
    ]


def excess_of_ranks(job: RanksJob, peers: list[Peers]) -> F64:
    """How much longer the own work of each rank takes than its peers' in each step; NaN where it is alone, or
    its recording does not hold the step."""
    found = np.full(job.here.shape, np.nan)
    for one in peers:
        if len(one.ranks) > MANY_PEERS:  # of many, leaving one out changes nothing
            found[one.ranks] = one.lateness_by_step(one.usual(), job.steps)
        elif len(one.ranks) > 1:
            for place, rank in enumerate(one.ranks.tolist()):
                usual = one.usual(one.ranks[place : place + 1])
                found[rank] = one.lateness_by_step(usual, job.steps)[place]
    return np.where(job.here, found, np.nan)


def others_median(values: F64) -> F64:
    """For each row the median of the other rows, column by column. Of many, leaving one out changes
    nothing."""
    if len(values) > MANY_PEERS:
        return np.broadcast_to(column_medians(values), values.shape)
    rows = np.arange(len(values))
    return np.stack([column_medians(values[rows != row]) for row in rows])


MANY_PEERS = 16  # from here on the median hardly changes with one of them. Chosen by hand.


def _ranks(job: RanksJob, peers: list[Peers]) -> list[Candidate]:
    questions = [Question("rank", rank, ranks=np.array([rank])) for rank in range(job.rows.ranks)]
    return _candidates(job, questions, excess_of_ranks(job, peers))


def _nodes(job: RanksJob, peers: list[Peers], layout: Layout) -> list[Candidate]:
    if layout.nodes < 2:
        return []
    late = np.full(job.here.shape, np.nan)
    for one in peers:
        late[one.ranks] = one.lateness_by_step(one.usual(), job.steps)
    late[~job.here] = np.nan
    members = [np.flatnonzero(layout.node == at) for at in range(layout.nodes)]
    nodes = np.stack([column_medians(late[mine]) for mine in members])
    questions = [Question("node", at, ranks=mine) for at, mine in enumerate(members)]
    return _candidates(job, questions, nodes - others_median(nodes))


def _stages(job: RanksJob, layout: Layout) -> list[Candidate]:
    """The stage that does most: all are asked about together, as its work goes to the others. Layers are the
    device's work: where the host takes longer, the other stages' hosts only got ahead while they waited."""
    if layout.stages < 2:
        return []
    times, on_device = stage_times(job, layout), stage_times(job, layout, on_device=True)
    excess = times - times.mean(axis=0)
    at = int(np.argmax(excess.mean(axis=1)))
    of_device = float((on_device - on_device.mean(axis=0))[at].mean())
    if of_device <= MAJORITY_SHARE * float(excess[at].mean()):
        return []
    every = [
        Question("stage", stage, ranks=np.flatnonzero(layout.stage == stage))
        for stage in range(layout.stages)
    ]
    return _candidates(job, every, excess)[:1]


def _links(job: RanksJob) -> list[Candidate]:
    """Groups whose transfers take longer than those of other groups that send the same."""
    found: list[Candidate] = []
    for like in _alike(job):
        groups = [_of_group(job, group) for group in like]
        times = np.stack([_by_step(job, mine) for mine in groups])
        usual = [_usual(job, groups, at) for at in range(len(groups))]
        questions = [
            Question("link", group, _members(job, mine), mine, usual[at])
            for at, (group, mine) in enumerate(zip(like, groups, strict=True))
        ]
        found += _candidates(job, questions, times - others_median(times))
    return sorted(found, key=lambda one: -float(np.nanmean(one.excess)))[:ASKED_ABOUT]


def _alike(job: RanksJob) -> list[list[int]]:
    """Groups of one size that send one kind of the same bytes; several of them, or there is nothing to
    compare with."""
    rows = job.rows
    shared = job.members[job.schedule.meeting] > 1
    found: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for group, name in enumerate(rows.groups):
        mine = shared & (rows.group == group)
        if not name or not mine.any():
            continue
        sent = {(int(kind), int(size)) for kind, size in zip(rows.kind[mine], rows.nbytes[mine], strict=True)}
        size = rows.sizes[group] if rows.sizes[group] > 0 else len(np.unique(rows.rank[mine]))
        found.setdefault((*sorted(sent), (-1, size)), []).append(group)
    return [like for like in found.values() if len(like) > 1]


def _of_group(job: RanksJob, group: int) -> I64:
    rows = job.rows
    mine: I64 = np.unique(job.schedule.meeting[rows.group == group])
    return mine[(job.members[mine] > 1) & (job.step_of[mine] >= 0)]


def _by_step(job: RanksJob, meetings: I64) -> F64:
    """What the transfers of these meetings take in each whole step."""
    return np.array(
        [job.transfer[meetings[job.step_of[meetings] == number]].sum() for number in job.steps.tolist()]
    )


def _usual(job: RanksJob, groups: list[I64], at: int) -> F64:
    """What each transfer of one group takes where the other groups' median has it, kind by kind."""
    mine = groups[at]
    others = np.concatenate([meetings for place, meetings in enumerate(groups) if place != at])
    found: F64 = job.transfer[mine].copy()
    for code in np.unique(job.like[mine]).tolist():
        same, its = mine[job.like[mine] == code], others[job.like[others] == code]
        if len(its):
            here = job.like[mine] == code
            found[here] = np.minimum(job.transfer[same], float(np.median(job.transfer[its])))
    return found


def _members(job: RanksJob, meetings: I64) -> I64:
    return np.unique(job.rows.rank[np.isin(job.schedule.meeting, meetings)])
