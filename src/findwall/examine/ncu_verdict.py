"""The verdict over kernels that were counted: the cause with the most recoverable kernel time, or none."""

from __future__ import annotations

from collections.abc import Sequence

from findwall.attribute.ncu_kernels import Judged
from findwall.examine.ncu_claims import helps
from findwall.model.catalogue import NEAR, QUESTION_OF, ROOFS, SMALL_PART, WALL_OF, WALLS, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.claims import Claim, Figure
from findwall.model.diagnosis import Next, Wall
from findwall.units import NS_PER_MS


class Totals:
    """Kernel time by cause, in ns, and what of it a perfect fix could give back; None where unknown."""

    def __init__(self, kernels: Sequence[Judged]) -> None:
        self.kernels = kernels
        self.time = sum(one.total_ns for one in kernels)
        self.spent: dict[str, float] = {}
        self.gain: dict[str, float | None] = {}
        self.blind = 0.0  # time of which nobody knows what could come back
        for one in kernels:
            self.spent[one.cause] = self.spent.get(one.cause, 0.0) + one.total_ns
            self._add_gain(one)

    def _add_gain(self, one: Judged) -> None:
        if one.cause in ROOFS:
            self.gain[one.cause] = 0.0
            return
        if one.floor_share is None:
            self.blind += one.total_ns
            self.gain.setdefault(one.cause, None)
            return
        self.gain[one.cause] = (self.gain.get(one.cause) or 0.0) + one.total_ns * (1.0 - one.floor_share)

    def of(self, cause: str) -> list[Judged]:
        """Kernels of a cause, the longest first."""
        return [one for one in self.kernels if one.cause == cause]

    def worth(self) -> list[str]:
        """Causes that give back enough to be a wall, the most first; a near tie goes to the earlier
        question."""
        known = {cause: gain for cause, gain in self.gain.items() if gain is not None and cause not in ROOFS}
        found = sorted(
            (cause for cause in known if known[cause] >= WORTH_IT * self.time), key=lambda one: -known[one]
        )
        if len(found) > 1 and known[found[1]] >= NEAR * known[found[0]]:
            first, second = found[:2]
            if QUESTION_OF[second] < QUESTION_OF[first]:
                found[:2] = [second, first]
        return found


def decide(totals: Totals) -> Wall:
    """One verdict, or what it lies between."""
    worth = totals.worth()
    if not worth:
        return _roof(totals)
    best = worth[0]
    gain = totals.gain[best] or 0.0
    known = sum(totals.gain[cause] or 0.0 for cause in worth)
    if known < SMALL_PART * max(totals.spent.get(roof, 0.0) for roof in ROOFS):
        roof = _roof(totals, best)
        if roof.cause is not None:
            return roof
    if totals.blind > gain:
        return _blind(totals, best)
    following = Next(WALL_OF[worth[1]], worth[1]) if len(worth) > 1 else None
    saves = gain / NS_PER_MS
    figures = {**_fills(totals, best), "saves_ms": saves}
    claim = Claim("kernels/wall", figures, parts=[helps(totals.of(best)[0])])
    return Wall(WALL_OF[best], best, "", following, claim=claim, saves_ms=saves)


def _fills(totals: Totals, cause: str) -> dict[str, Figure]:
    return {
        "cause": cause,
        "spent_ms": totals.spent[cause] / NS_PER_MS,
        "total_ms": totals.time / NS_PER_MS,
        "spent_share": totals.spent[cause] / totals.time,
    }


def _roof(totals: Totals, beside: str | None = None) -> Wall:
    """Nothing worth it is left. `beside`: what gives something back, but little beside what stands there."""
    if totals.blind > SMALL_PART * totals.time:
        return _blind(totals, None)
    compute, bandwidth = (
        sum(totals.spent.get(cause, 0.0) for cause in WALLS[wall]) for wall in ("compute", "bandwidth")
    )
    roof = ROOFS[0] if compute >= bandwidth else ROOFS[1]
    if totals.spent.get(roof, 0.0) < WORTH_IT * totals.time:
        figures: dict[str, Figure] = {"worth_share": WORTH_IT, "total_ms": totals.time / NS_PER_MS}
        nothing = Claim("kernels/no-roof", figures)
        return Wall(None, None, between=[], claim=nothing, why_not="no-roof")
    figures = {**_fills(totals, roof), "worth_share": WORTH_IT}
    following = None
    if beside is not None:
        figures |= {"beside": beside, "gain_ms": (totals.gain[beside] or 0.0) / NS_PER_MS}
        following = Next(WALL_OF[beside], beside)
    claim = Claim("kernels/roof", figures, parts=[helps(totals.of(roof)[0])])
    return Wall(WALL_OF[roof], roof, "", following, claim=claim)


def _blind(totals: Totals, best: str | None) -> Wall:
    """Too much is unknown: what it may be, and what would tell."""
    between = [best] if best is not None else []
    between += [
        cause for cause in totals.spent if cause not in (UNKNOWN, best) and totals.gain[cause] is None
    ]
    counters = totals.spent.get(UNKNOWN, 0.0) >= totals.blind / 2
    share: dict[str, Figure] = {"blind_share": totals.blind / totals.time}
    claim = Claim("kernels/no-counters" if counters else "kernels/no-floor", share)
    pairs = [[WALL_OF[cause], cause] for cause in between]
    return Wall(None, None, between=pairs, claim=claim, why_not="unknown")
