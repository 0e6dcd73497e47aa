"""The kinds of steps and the job's whole time, as rows of the document."""

from __future__ import annotations

from findwall.attribute.facts import Facts
from findwall.attribute.figures import kinds_of, longer_steps, seen_doing, what_it_does
from findwall.model.catalogue import SMALL_PART
from findwall.model.claims import Claim
from findwall.model.diagnosis import KindRow
from findwall.model.kinds import SELDOM, USUAL, StepKind
from findwall.model.run import Rank

BESIDE_STEPS = ("evaluation", "saving", "loader-start")


def kind_rows(rank: Rank, facts: Facts | None = None) -> list[KindRow]:
    """The kinds of steps there are; nothing where no step was timed."""
    kinds = _kinds(rank, facts)
    # The timed steps' shares are of the timed steps: together with those that came later they are fewer.
    timed = 1.0 - sum(one.share for one in kinds if one.name == SELDOM)
    return [
        KindRow(
            one.name,
            one.share if one.name == SELDOM else one.share * timed,
            one.mean * 1e3,
            one.every,
            claim=_what(one, rank, facts),
        )
        for one in kinds
    ]


def _kinds(rank: Rank, facts: Facts | None) -> tuple[StepKind, ...]:
    if facts is not None:
        return kinds_of(facts)
    return () if rank.step_times is None else rank.step_times.kinds()


def _what(kind: StepKind, rank: Rank, facts: Facts | None) -> Claim | None:
    return seen_doing(kind, rank.loader_workers) if facts is None else what_it_does(facts, kind)


def elapsed_shares(rank: Rank) -> dict[str, float] | None:
    """What the job's time went to, as shares of it."""
    found = rank.elapsed
    if found is None or found.total <= 0:
        return None
    parts = {
        "steps": found.steps,
        "start-up": found.start_up,
        "evaluation": found.evaluation,
        "saving": found.saving,
        "loader-start": found.loader_start,
        "other": found.other,
    }
    # Saving and loading may overlap what else is counted: together they are never more than all.
    total = max(found.total, sum(parts.values()))
    return {name: value / total for name, value in parts.items()}


def about_kinds(rank: Rank, facts: Facts | None = None) -> list[Claim]:
    """Steps that are not like the others."""
    kinds = _kinds(rank, facts)
    usual = next((kind for kind in kinds if kind.name == USUAL), None)
    if usual is None:
        return []
    return [
        Claim(
            "steps/of-a-kind",
            {"late": kind.name == SELDOM},
            parts=[longer_steps(kind, usual, _what(kind, rank, facts))],
        )
        for kind in kinds
        if kind.name != USUAL
    ]


def about_elapsed(rank: Rank) -> list[Claim]:
    """Where the job's time goes outside of its steps, if much of it does."""
    shares = elapsed_shares(rank)
    if shares is None or rank.elapsed is None:
        return []
    beside = {name: shares[name] for name in BESIDE_STEPS}
    if sum(beside.values()) < SMALL_PART:
        return []
    return [Claim("elapsed/outside", {"total_s": rank.elapsed.total, **beside})]
