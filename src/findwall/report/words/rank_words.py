"""Who the ranks wait for, and what for: in sentences, and in the short lines of the terminal."""

from __future__ import annotations

from findwall.model.claims import Claim
from findwall.report.words import Words, fill

_LONGER_FOR = {
    "device": "on its device",
    "copy": "in copies to the device",
    "loader": "in its data loader",
    "gc": "in Python's garbage collector",
    "host": "on its host",
}
_UNEVEN_FOR = {
    "device": "its device has more to do",
    "copy": "its copies to the device take longer",
    "loader": "its data loader takes longer",
    "gc": "Python's garbage collector stops its host",
    "host": "its host takes longer",
}
_LOOK_AT = {
    "device": "give that {what} less work, or look at its GPUs (clocks, neighbours)",
    "copy": "look at how its batches are copied",
    "loader": "look at its data loader and its storage",
    "gc": "collect garbage at the same step on all ranks",
    "host": "look at what its host does besides (the line above, other processes)",
}
_EVEN_OUT = {
    "device": "give all ranks batches of the same cost (sort or bucket by length, shard by tokens)",
    "gc": "collect garbage at the same step on all ranks: gc.disable(), then gc.collect() every few hundred "
    "steps",
    "loader": "give each loader more workers, so that a slow batch is ready in time",
}


def is_late(claim: Claim) -> str:
    why = _LONGER_FOR.get(str(claim.figures.get("why")), "")
    mostly = f", mainly {why}" if why else ""
    told = fill(
        "For {opening} this rank waits in collectives for {what} {late}[[ (most often at {places[0]})]]. Its "
        "own work takes {excess_ms:ms} longer per step than its peers'",
        claim,
    )
    return told + mostly


def uneven(claim: Claim) -> str:
    why = _UNEVEN_FOR.get(str(claim.figures.get("why")), "")
    because = f" because {why}" if why else ""
    told = fill("For {opening} this rank waits in collectives for others. ", claim)
    if claim.figures.get("one_step"):
        return told + "One step does not show whether it is the same one each time"
    return told + fill("Another of the {ranks} ranks comes last each step", claim) + because


def _waits_for(claim: Claim) -> str:
    why = _LONGER_FOR.get(str(claim.figures.get("why")), "")
    mostly = f", mainly {why}" if why else ""
    told = fill(
        "The ranks wait for {what} [[{group}]][[{late}]], which takes {excess_ms:ms} longer per step than "
        "its peers",
        claim,
    )
    return told + mostly + fill(". As they are, it would save {saves_ms:ms} of the {step_ms:ms} step.", claim)


_WHO = {
    "uneven": "Another rank comes last each step: nobody is late more often than the others.",
    "even": "No rank costs the others anything worth it.",
}


def _nobody_named(claim: Claim) -> str:
    told = "" if claim.figures.get("why") else _WHO.get(str(claim.figures.get("pattern")), "")
    told = told or "It takes several steps that the ranks share to find out whether one is late."
    return f"{told} Add the trace of one of them to see what else the step waits for."


def balance(claim: Claim) -> str:
    return fill(
        _LOOK_AT.get(str(claim.figures.get("why")), "give it less work, or look at its own trace"), claim
    )


def balance_uneven(claim: Claim) -> str:
    return _EVEN_OUT.get(str(claim.figures.get("why")), "give every rank the same work in each step")


WORDS: dict[str, Words] = {
    "ranks/waits-for": _waits_for,
    "ranks/nobody-named": _nobody_named,
}
