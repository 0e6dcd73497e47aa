"""The verdict over kernels that were counted: the cause with the most recoverable kernel time, or none."""

from __future__ import annotations

from collections.abc import Sequence

from findwall.attribute.ncu_kernels import Judged
from findwall.examine.ncu_words import MORE_COUNTERS, helps
from findwall.model.catalogue import NEAR, QUESTION_OF, ROOFS, SMALL_PART, WALL_OF, WALLS, WORTH_IT
from findwall.model.causes import UNKNOWN
from findwall.model.diagnosis import Next, Wall
from findwall.units import NS_PER_MS, format_ms, format_share

# What fills the kernel time, by cause; the longest kernel's own sentence says why.
GOES_TO = {
    "at-the-roof": "kernels that run at the roof of their arithmetic",
    "memory-roof": "kernels that run at the memory roof",
    "misaligned-shapes": "16-bit products whose operands do not lie on 16 bytes",
    "fast-path-off": "fp32 products that leave the tensor cores unused",
    "layout-copies": "copies that only change a layout",
    "gather-scatter": "gathers and scatters far from the memory roof",
    "slow-kernels": "kernels far below what the device can do",
    "launch-bound": "kernels too small to use the device",
}


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
    saves = f"that saves up to {format_ms(gain / NS_PER_MS)}"
    action = helps(totals.of(best)[0]).rstrip(".")
    return Wall(WALL_OF[best], best, f"{_fills(totals, best)}. {action}; {saves}.", following)


def _fills(totals: Totals, cause: str) -> str:
    spent, share = format_ms(totals.spent[cause] / NS_PER_MS), totals.spent[cause] / totals.time
    return (
        f"{spent} of the {format_ms(totals.time / NS_PER_MS)} of kernel time ({format_share(share)}) goes to "
        f"{GOES_TO[cause]}"
    )


def _roof(totals: Totals, beside: str | None = None) -> Wall:
    """Nothing worth it is left. `beside`: what gives something back, but little beside what stands there."""
    if totals.blind > SMALL_PART * totals.time:
        return _blind(totals, None)
    compute, bandwidth = (
        sum(totals.spent.get(cause, 0.0) for cause in WALLS[wall]) for wall in ("compute", "bandwidth")
    )
    roof = ROOFS[0] if compute >= bandwidth else ROOFS[1]
    if totals.spent.get(roof, 0.0) < WORTH_IT * totals.time:
        text = (
            f"No cause recovers {100 * WORTH_IT:.0f} % of the {format_ms(totals.time / NS_PER_MS)} of kernel "
            "time, and no kernels run at a roof, so there is no wall in them. Look at the gaps between them: "
            "`findwall run` measures the step."
        )
        return Wall(None, None, text, None, [])
    action = helps(totals.of(roof)[0])
    if beside is None:
        rest, following = f"no other cause recovers {100 * WORTH_IT:.0f} %", None
    else:
        gain = format_ms((totals.gain[beside] or 0.0) / NS_PER_MS)
        rest, following = f"{beside} could give back only {gain}", Next(WALL_OF[beside], beside)
    return Wall(WALL_OF[roof], roof, f"{_fills(totals, roof)}, and {rest}. {action}", following)


def _blind(totals: Totals, best: str | None) -> Wall:
    """Too much is unknown: what it may be, and what would tell."""
    between = [best] if best is not None else []
    between += [
        cause for cause in totals.spent if cause not in (UNKNOWN, best) and totals.gain[cause] is None
    ]
    share = format_share(totals.blind / totals.time)
    if totals.spent.get(UNKNOWN, 0.0) >= totals.blind / 2:
        why, action = "whose counters do not tell what binds them", MORE_COUNTERS
    else:
        why = "whose floor is unknown, because the file does not say enough of its GPU and their instructions"
        action = "Export with --page raw, or give this GPU's ceilings with --ceilings."
    text = f"{share} of the kernel time goes to kernels {why}. {action}"
    return Wall(None, None, text, None, [[WALL_OF[cause], cause] for cause in between])
