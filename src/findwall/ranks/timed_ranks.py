"""Ranks of whom nothing is known but their steps' time: slow by timing, for a reason that nobody saw.

Ranks that meet in each step take as long as each other, whoever is late. One whose steps are longer all the
same meets the others seldom, and they wait for it then: the job is as fast as its slowest rank.
"""

from __future__ import annotations

import msgspec
import numpy as np

from findwall.model.answers.ranks_answer import RanksTogether, Suspect
from findwall.model.catalogue import WORTH_IT
from findwall.model.intervals import F64
from findwall.ranks.chance import chance_of
from findwall.ranks.played.matching import OUTLYING
from findwall.ranks.suspects import CHANCE_ALLOWED
from findwall.units import NS_PER_S, ms


class TimedRank(msgspec.Struct, frozen=True):
    """A rank's steps without the profiler."""

    number: int
    seconds: tuple[float, ...]
    is_traced: bool


def with_timed(answer: RanksTogether, ranks: list[TimedRank]) -> RanksTogether:
    """The answer with those who were only timed. The replay has the first word: who it names is known why."""
    only = [rank for rank in ranks if not rank.is_traced]
    numbers = {rank.number for rank in only}
    if not only:
        return answer
    absent = [rank for rank in answer.missing if rank not in numbers]
    found = msgspec.structs.replace(
        answer, timed=len(only), missing=absent, missing_count=max(answer.missing_count - len(numbers), 0)
    )
    if not any(one.named for one in found.suspects) and (slow := _slowest(ranks)) is not None:
        found = msgspec.structs.replace(found, suspects=[slow, *found.suspects], pattern="one")
    return found


def _slowest(ranks: list[TimedRank]) -> Suspect | None:
    """The job as its ranks' own steps: as long as the longest, which is one that was only timed."""
    timed = [rank for rank in ranks if rank.seconds]
    if len(timed) < 2:
        return None
    means: F64 = np.array([np.mean(rank.seconds) for rank in timed])
    at = int(np.argmax(means))
    others = np.delete(means, at)
    usual = float(np.median(others))
    excess = np.array(timed[at].seconds) - usual
    saves = float(means[at] - others.max())
    chance = min(chance_of(excess) * len(timed), 1.0)
    apart = OUTLYING * float(np.median(np.abs(others - usual)))
    if timed[at].is_traced or chance > CHANCE_ALLOWED or saves < max(WORTH_IT * means[at], apart):
        return None
    number = timed[at].number
    return Suspect(
        what="rank",
        name=str(number),
        ranks=[number],
        saves_ms=ms(saves * NS_PER_S),
        excess_ms=ms(float(excess.mean()) * NS_PER_S),
        chance=chance,
        named=True,
        by="timing",
    )
