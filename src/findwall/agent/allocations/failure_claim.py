"""What is said of a job that ran out of memory: when it ends, and whenever its run is read."""

from __future__ import annotations

from math import inf

from findwall.model.answers.memory_answer import CaughtFailures, FailureGrowth, OutOfMemory
from findwall.model.catalogue import MAJORITY_SHARE
from findwall.model.claims import Claim, Figure, known, lines

MODEL = ("parameters", "gradients", "optimizer-state")  # what no smaller batch makes less


def failure_claim(oom: OutOfMemory) -> Claim:
    """Who asked for how much, what was alive, why there was no more, what would help first."""
    figures: dict[str, Figure] = {
        name: getattr(oom, name)
        for name in (
            "asked_gib",
            "device_free_gib",
            "free_gib",
            "total_gib",
            "limit_gib",
            "others_gib",
            "device",
            "on_host",
        )
    }
    figures["phase"] = oom.phase if oom.phase != "unknown" else None
    parts = [Claim("memory-failed/asked", figures, places=lines(oom.line))]
    if oom.held_gib is not None and oom.kinds:
        held: dict[str, Figure] = {"held_gib": oom.held_gib, "on_host": oom.on_host}
        held |= {f"{row.kind.replace('-', '_')}_gib": row.gib for row in oom.kinds}
        parts.append(Claim("memory-failed/held", held))
    if oom.cause != "growth":
        parts.append(Claim(f"memory-failed/{oom.cause}", figures))
    elif oom.limit_gib is not None and (oom.asked_gib or inf) <= (oom.device_free_gib or 0.0):
        parts.append(Claim("memory-failed/limit", figures))  # what it grew into
    if oom.growth is not None:
        parts.append(_growth(oom.growth))
    if _makes_state(oom):
        parts.append(Claim("memory-failed/state", {"state_gib": oom.state_gib}))
    helps = _helps(oom)
    if helps and not (oom.rung is not None and oom.rung.fits):  # else that is the one thing to do
        parts.append(Claim(f"memory-helps/{helps}", _to_help(oom), places=lines(oom.line)))
    if oom.growth is not None:
        parts.append(Claim(f"memory-helps/{_keeps(oom.growth)}", {"on_host": oom.on_host}))
    return Claim("memory/failed", parts=parts)


def _helps(oom: OutOfMemory) -> str:
    """The first thing to do; nothing where the cause is unknown."""
    if oom.cause == "fragmentation":
        return "sizes-alike" if oom.is_expandable else "expandable-segments"
    if oom.cause == "size" and _makes_state(oom):
        return "less-state"
    if oom.cause == "size":
        if oom.asked_gib is not None and oom.total_gib is not None and oom.asked_gib > oom.total_gib:
            return "in-parts"
        if oom.on_host:
            return "host"
        if oom.held_gib and model_gib(oom) > MAJORITY_SHARE * oom.held_gib:
            return "shard"
        return "optimizer" if oom.phase == "optimizer" else "smaller-batch"
    if oom.cause == "limit":
        return "raise-host-limit" if oom.on_host else "raise-limit"
    return "end-others" if oom.cause == "others" else ""


def _to_help(oom: OutOfMemory) -> dict[str, Figure]:
    return {"rest_gib": _rest(oom), "has_batch": oom.of_training is not False}


def model_gib(oom: OutOfMemory) -> float:
    """Of what was held, as far as the job's model was seen."""
    return sum(row.gib for row in oom.kinds if row.kind in MODEL)


def _makes_state(oom: OutOfMemory) -> bool:
    return oom.state_gib is not None and oom.cause in ("size", "others", "limit")


def _rest(oom: OutOfMemory) -> float | None:
    """What is no part of the model, where the job's model was seen at all."""
    if not any(row.kind in MODEL for row in oom.kinds):
        return None
    return next((row.gib for row in oom.kinds if row.kind == "unknown"), None)


def _growth(growth: FailureGrowth) -> Claim:
    figures: dict[str, Figure] = {
        "grown_gib": growth.gib_per_step,
        "first_step": growth.first_step,
        "last_step": growth.last_step,
        "tensors": growth.tensors,
        "graphs": growth.graphs,
    }
    return Claim("memory-failed/growth", figures, known(holder=growth.holder, function=growth.function))


def _keeps(growth: FailureGrowth) -> str:
    if growth.holder is None:
        return "find-kept"
    return "keep-numbers" if growth.graphs else "keep-on-host"


def caught_claim(caught: CaughtFailures) -> Claim:
    figures: dict[str, Figure] = {"count": caught.count, "largest_gib": caught.largest_gib}
    return Claim("memory/caught", figures, places=lines(caught.line))
