"""The ranks of a job in a few lines: how they spread, and who is late. Never a line a rank."""

from __future__ import annotations

from findwall.model.answers.ranks_answer import RanksTogether, Spread, Suspect
from findwall.report.printable_names import clean
from findwall.units import format_ms, format_share, in_short

_FOR = {
    "device": "on the device",
    "copy": "in copies",
    "loader": "in the loader",
    "gc": "in garbage collection",
    "host": "on the host",
    "link": "in transfers",
}
_NOBODY = {
    "uneven": "another rank is last each step",
    "even": "nobody: no rank costs the others anything worth it",
    "unknown": "unknown: that takes several steps",
}


def facts(ranks: RanksTogether | None) -> list[tuple[str, str]]:
    """A label and its text each; nothing of one rank alone."""
    if ranks is None:
        return []
    named = next((one for one in ranks.suspects if one.named), None)
    if ranks.why_not:
        return [] if named is None else [("late", _late(named))]
    found = [("ranks", _compared(ranks))]
    if ranks.own is not None and ranks.waits is not None:
        found.append(("own work", f"{_three(ranks.own)} per step (min, median, max of the ranks)"))
        found.append(("waiting", f"{_three(ranks.waits)} per step"))
    found.append(("late", _late(named) if named is not None else _nobody(ranks)))
    return found


def _compared(ranks: RanksTogether) -> str:
    parts = [f"{ranks.compared} compared"]
    parts += [f"{ranks.nodes} nodes"] if ranks.nodes else []
    parts += [f"{ranks.stages} stages"] if ranks.stages else []
    parts.append(f"{ranks.matched:,} of {ranks.messages:,} communications matched")
    parts += [f"{ranks.timed:,} only timed"] if ranks.timed else []
    if ranks.missing_count:
        parts.append(_missing(ranks))
    return " · ".join(parts)


def _missing(ranks: RanksTogether) -> str:
    """By number, as long as those are told."""
    one = ranks.missing_count == 1
    if ranks.missing_count > len(ranks.missing):
        return f"{ranks.missing_count:,} ranks are not here"
    return f"{'rank' if one else 'ranks'} {in_short(ranks.missing)} {'is' if one else 'are'} not here"


def _three(spread: Spread) -> str:
    return f"{format_ms(spread.min)} / {format_ms(spread.median)} / {format_ms(spread.max)}"


def _late(one: Suspect) -> str:
    if one.by == "timing":
        return (
            f"{one.what} {clean(one.name)}, slow by timing: its steps take {format_ms(one.excess_ms)} longer "
            "than the others'; it was not traced"
        )
    where = f" at {clean(one.line)}" if one.line else ""
    why = f" {_FOR[one.why]}" if one.why else ""
    return (
        f"{one.what} {clean(one.name)}{where}: {format_ms(one.excess_ms)} longer than its peers{why}; "
        f"as they are, it would save {format_ms(one.saves_ms)} per step"
    )


def _nobody(ranks: RanksTogether) -> str:
    text = _NOBODY.get(ranks.pattern, "")
    if ranks.timed and ranks.pattern == "even":
        text = "nobody of those traced: none costs the others anything worth it"
    if ranks.pattern == "uneven" and ranks.all_level_ms and ranks.step_ms:
        share = format_share(ranks.all_level_ms / ranks.step_ms)
        text += f"; even work would save {format_ms(ranks.all_level_ms)} ({share})"
    return text
