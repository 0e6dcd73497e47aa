"""All ranks of a job compared: from their summaries to what the document says of them."""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.answers.ranks_answer import RanksTogether, Spread, Suspect
from findwall.model.catalogue import WORTH_IT
from findwall.model.intervals import F64
from findwall.model.summaries.rank_summary import RankSummary
from findwall.ranks.layout import Layout, lay_out
from findwall.ranks.link_rates import link_rows
from findwall.ranks.parallelism import even_bubble, group_rows, groups_of, micro_batches
from findwall.ranks.peers import peers_of
from findwall.ranks.played.all_rows import AllRows, gather
from findwall.ranks.played.clocks import Clocks, fit_clocks
from findwall.ranks.played.matching import Matched, match
from findwall.ranks.played.ranks_job import RanksJob, set_up
from findwall.ranks.reasons import why, why_uneven, without_those_in_line
from findwall.ranks.suspects import Candidate, Found, excess_of_ranks, find_suspects
from findwall.ranks.what_ifs import own_by_step
from findwall.ranks.whole_ranks import with_gaps_closed, with_lost_holds
from findwall.units import NS_PER_US, ms

SUSPECTS_LISTED = 3
RANKS_NAMED = 16  # of those that belong to a suspect, or are missing
# Of the step: a replay that is further off than a wall has to save answers no question.
LARGEST_REPLAY_ERROR = WORTH_IT


class RanksCompared(msgspec.Struct, frozen=True):
    """What the ranks say together, and what it rests on; no job where they could not be played."""

    answer: RanksTogether
    numbers: tuple[int, ...] = ()
    job: RanksJob | None = None
    found: Found | None = None


def compare(summaries: list[RankSummary]) -> RanksCompared:
    """The document's part on ranks. Linear in them."""
    rows = gather(summaries)
    answer = RanksTogether(compared=len(summaries), messages=len(rows), matched=0)
    _missing(answer, rows, summaries)
    if len(summaries) < 2 or len(rows) == 0:
        answer.why_not = "one" if len(summaries) < 2 else "no-messages"
        return RanksCompared(answer, rows.numbers)
    matched = match(rows)
    clocks = fit_clocks(rows, matched)
    answer.matched = matched.matched
    job = set_up(rows, matched, clocks)
    if job is None or len(job.steps) == 0:
        answer.why_not = "none-shared"
        return RanksCompared(answer, rows.numbers)
    answer.clock_residual_us = clocks.residual_ns / NS_PER_US
    return _played(summaries, rows, matched, clocks, job, answer)


def _played(
    summaries: list[RankSummary],
    rows: AllRows,
    matched: Matched,
    clocks: Clocks,
    job: RanksJob,
    answer: RanksTogether,
) -> RanksCompared:
    layout = lay_out(summaries, rows, clocks, job.schedule.meeting)
    peers = peers_of(job, layout)
    if (closed := with_gaps_closed(job, peers)) is not None:
        job, peers = closed, peers_of(closed, layout)
    job = with_lost_holds(job, peers)
    played = np.diff(job.step_ends(job.play()[0])[0])
    measured = np.diff(job.step_ends(job.measured[None, :])[0])
    lacking = ~job.here.all(axis=0) | (answer.missing_count > 0)
    like = np.abs(played - measured) <= LARGEST_REPLAY_ERROR * measured
    if (like | ~lacking).any():
        job = msgspec.structs.replace(job, counts=like | ~lacking)
    length = float(measured[job.counts].sum())
    answer.replay_error = float(played[job.counts].sum()) / length - 1.0 if length > 0 else None
    answer.entry_skew_ms = ms(job.entry_skew) if job.entry >= 0 else None
    answer.step_ms = ms(length / int(job.counts.sum()))
    answer.nodes = layout.nodes if layout.nodes_known and not answer.missing_count else None
    answer.stages = layout.stages if layout.stages > 1 else None
    _times(answer, job, layout)
    groups = groups_of(summaries, job, layout)
    answer.groups = group_rows(groups, job, layout)
    answer.links = link_rows(job, {one.name: one.size for one in groups})
    if answer.replay_error is None or abs(answer.replay_error) > LARGEST_REPLAY_ERROR:
        answer.why_not = "unlike-clocks"
        return RanksCompared(answer, rows.numbers, job)
    found = without_those_in_line(find_suspects(job, peers, layout), summaries)
    answer.pattern = found.pattern if len(job.steps) > 1 else "unknown"  # type: ignore[assignment]
    answer.all_level_ms = ms(found.level)
    if answer.pattern == "uneven":
        reason = why_uneven(job, layout, excess_of_ranks(job, peers))
        answer.uneven_why = reason[0] if reason is not None else None  # type: ignore[assignment]
    answer.suspects = [
        _suspect(summaries, job, layout, found, at) for at in range(len(found.candidates))[:SUSPECTS_LISTED]
    ]
    if found.named >= SUSPECTS_LISTED:
        answer.suspects.append(_suspect(summaries, job, layout, found, found.named))
    answer.suspects.sort(key=lambda one: (not one.named, -one.saves_ms))
    return RanksCompared(answer, rows.numbers, job, found)


def _times(answer: RanksTogether, job: RanksJob, layout: Layout) -> None:
    """What the ranks do by themselves, and what is left of the step: waiting."""
    own = np.where(job.here & job.counts, own_by_step(job), np.nan)
    known = ~np.isnan(own).all(axis=1)
    if not known.any() or answer.step_ms is None:
        return
    mean = np.nanmean(own[known], axis=1)
    step = answer.step_ms
    answer.own = _spread(mean)
    waits = np.clip(step * 1e6 - mean, 0.0, step * 1e6)
    answer.waits = _spread(waits)
    answer.efficiency = min(answer.own.median / step, 1.0)
    if layout.stages > 1:
        answer.bubble_share = float(waits.mean()) / (step * 1e6)
        answer.micro_batches = batches = micro_batches(job, layout)
        answer.bubble_expected = even_bubble(layout.stages, batches) if batches else None


def _spread(values: F64) -> Spread:
    return Spread(ms(float(values.min())), ms(float(np.median(values))), ms(float(values.max())))


def _suspect(summaries: list[RankSummary], job: RanksJob, layout: Layout, found: Found, at: int) -> Suspect:
    one: Candidate = found.candidates[at]
    question, numbers = one.question, job.rows.numbers
    names = {"rank": "", "node": str(question.number), "stage": str(question.number)}
    if question.what == "link":
        name = job.rows.groups[question.number]
    else:
        name = names[question.what] or str(numbers[question.number])
    reason = why(job, layout, one)
    seen = summaries[int(question.ranks[0])].lines if question.what == "rank" else ()
    return Suspect(
        what=question.what,  # type: ignore[arg-type]
        name=name,
        ranks=[numbers[rank] for rank in question.ranks[:RANKS_NAMED].tolist()],
        saves_ms=ms(max(float(np.nanmean(found.saved[at])), 0.0)),
        excess_ms=ms(float(np.nanmean(one.excess))),
        chance=one.chance,
        named=at == found.named,
        why=reason[0] if reason is not None else None,  # type: ignore[arg-type]
        why_ms=ms(reason[1]) if reason is not None else None,
        line=seen[0].place if seen else None,
    )


def _missing(answer: RanksTogether, rows: AllRows, summaries: list[RankSummary]) -> None:
    world = max((one.world_size or 0 for one in summaries), default=0)
    absent = sorted(set(range(world)) - set(rows.numbers))
    answer.missing_count, answer.missing = len(absent), absent[:RANKS_NAMED]
