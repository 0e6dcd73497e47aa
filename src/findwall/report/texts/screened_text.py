"""What a screening said of fixes, in a line each: time alone, in one process."""

from __future__ import annotations

from collections.abc import Sequence

from findwall.model.applied import ScreenedTrial
from findwall.model.claims import Range
from findwall.model.switches.typed_switches import own_name
from findwall.trial.screened import Screened
from findwall.trial.stacks_tried import joined
from findwall.trial.statistics import Comparison
from findwall.units import format_share


def as_rows(screened: Sequence[Screened]) -> list[ScreenedTrial]:
    """For the document."""
    return [
        ScreenedTrial(
            fix=one.fix,
            says=one.says,
            speedup=_range(one.faster),
            could_see=one.could_see,
            took_effect=one.took_effect,
            base=joined(tuple(map(own_name, one.base))),
            why=one.trouble or one.seen,
            seconds=one.seconds,
        )
        for one in screened
    ]


def _range(found: Comparison | None) -> Range:
    return Range() if found is None else Range(found.low, found.ratio, found.high)


def lines(rows: Sequence[ScreenedTrial]) -> list[str]:
    if not rows:
        return []
    wide = max(len(one.fix) for one in rows)
    return ["", "  screened while the job ran, by time alone", *(f"    {_line(one, wide)}" for one in rows)]


def _line(one: ScreenedTrial, wide: int) -> str:
    on = f" (on top of {one.base})" if one.base else ""
    low, mid, high = one.speedup.low, one.speedup.mid, one.speedup.high
    if mid is None or low is None or high is None or not one.took_effect:
        return f"{one.fix:{wide}}  {one.why}{on}"
    least = f"; it would have shown a gain of {format_share(one.could_see)}" if one.says == "no-gain" else ""
    open_still = f"; open: {one.why}" if one.says == "open" else ""
    return f"{one.fix:{wide}}  {mid:.2f}× ({low:.2f}–{high:.2f}){least}{open_still}{on}"
