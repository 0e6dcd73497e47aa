"""A comparison in words: as text of 80 columns, and as Markdown for a pull request.

The page (`page/compared.py`) takes its words and figures from here as well.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import msgspec

from findwall.model.comparison import CauseChange, Compared, KernelChange, Side, StepChange
from findwall.report.markdown import escape
from findwall.report.phrases import decimals
from findwall.report.printable_names import brief, clean, fit, kernel_name
from findwall.units import format_ms

# What is shown is chosen by hand: one screen, and nothing that changes no decision.
CAUSES_SHOWN = 9
FOLDED_SHARE = 0.002  # of the longer step: smaller changes are folded into one row
KERNELS_SHOWN = 10
DIFFERENCES_SHOWN = 8
LONGEST_LABEL = 24  # characters: a wall, or what differs
WIDE = 0.05  # of the step: an interval that reaches further on either side leaves too much open
SEVERAL = "findwall compare A1 A2 A3 A4 -- B1 B2 B3 B4"
UNPROVEN = 0.03  # of the step: a change from here on is not called none because it is not proven
TITLES = {"faster": "FASTER", "slower": "SLOWER", "no-difference": "NO DIFFERENCE", "unknown": "CANNOT TELL"}


class Row(msgspec.Struct, frozen=True):
    """One line of a table, its figures as every view writes them: milliseconds before, after, and between."""

    label: str  # a wall, or what happened to a kernel
    name: str
    before: str
    after: str
    change: str
    ms: float = 0.0  # the change, for a drawing


def to_text(compared: Compared, width: int = 80) -> str:
    """The comparison as plain text."""
    title, sentence = verdict(compared)
    lines = [title, *_wrapped(sentence, width), ""]
    lines += _labelled(both_sides(compared), width)
    if rows := causes(compared):
        lines += ["", "where the step changed, ms per step", *_table("wall", "cause", rows, width)]
    if kernels := changed_kernels(compared):
        lines += ["", "kernels, ms per step", *_table("", "kernel", kernels, width)]
        lines += _more(len(compared.kernels) - KERNELS_SHOWN)
    if differs := environment(compared):
        lines += ["", "what differs besides", *_labelled(differs[:DIFFERENCES_SHOWN], width)]
        lines += _more(len(differs) - DIFFERENCES_SHOWN)
    if compared.notes:
        lines += ["", "notes", *_labelled([("-", clean(note)) for note in compared.notes], width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def to_markdown(compared: Compared) -> str:
    """The same for a comment on a pull request."""
    title, sentence = verdict(compared)
    blocks = [f"### {escape(title)}", escape(sentence)]
    blocks.append("\n".join(f"- {label}: {escape(text)}" for label, text in both_sides(compared)))
    blocks.append(_grid("wall", "cause", causes(compared)))
    blocks.append(_grid("", "kernel", changed_kernels(compared)))
    differs = environment(compared)[:DIFFERENCES_SHOWN]
    blocks.append("\n".join(f"- {escape(what)}: {escape(text)}" for what, text in differs))
    blocks.append("\n".join(f"- {escape(note)}" for note in compared.notes))
    return "\n\n".join(block for block in blocks if block) + "\n"


def verdict(compared: Compared) -> tuple[str, str]:
    """The title, with the number; and the sentence: what it rests on, and what to do."""
    step = compared.step
    is_open = step.outcome == "no-difference" and abs(step.share or 0.0) > UNPROVEN
    title = "NOT PROVEN" if is_open else TITLES[step.outcome]
    if step.ms is None or step.share is None:
        return title, f"{_capital(step.why)}."
    how = f"{format_ms(compared.before.step_ms)} → {format_ms(compared.after.step_ms)}"
    title += f": step {how} ({signed_share(step.share)})"
    if step.outcome == "unknown":
        return title, f"{signed_share(step.share)} may be chance: {step.why}."
    return title, _grounds(compared, step)


def _grounds(compared: Compared, step: StepChange) -> str:
    runs = f"{len(compared.before.steps_ms)} + {len(compared.after.steps_ms)} runs"
    ends = _ends(step)
    if step.rests_on == "steps":
        bar = signed_share(step.bar or 0.0).lstrip("+")
        held = "more" if step.outcome != "no-difference" else "no more"
        within = f" ({ends} as far as their steps tell)" if ends else ""
        return (
            f"{signed_share(step.share or 0.0)}{within} is {held} than the {bar} that steps and processes "
            f"of one job may vary by. One run a side: repeat to be sure ({SEVERAL})."
        )
    if step.outcome != "no-difference":
        return f"{_capital(ends)} at 99 %, from {runs}."
    if max(abs(step.low or 0.0), abs(step.high or 0.0)) > WIDE:
        return (
            f"{_capital(ends)} at 99 %, from {runs}: no difference is proven, and much is left open. "
            f"Give more runs a side."
        )
    return f"{_capital(ends)} at 99 %, from {runs}: no more than machines drift by."


def _ends(step: StepChange) -> str:
    if step.low is None or step.high is None:
        return ""
    return f"between {signed_share(step.low)} and {signed_share(step.high)}"


def signed_share(share: float) -> str:
    """A change as a percentage with its sign."""
    percent = 100 * share
    text = f"{percent:+.0f}" if abs(percent) >= 10 else f"{percent:+.1f}"
    return f"{text.replace('-', '−')} %" if text.strip("+-0.") else "0 %"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def both_sides(compared: Compared) -> list[tuple[str, str]]:
    return [("A", _of_side(compared.before)), ("B", _of_side(compared.after))]


def _of_side(side: Side) -> str:
    """What a side is: its runs, its device, its wall."""
    names = [PurePath(path).name or path for path in side.paths]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    wall = f"{side.wall} / {side.cause}" if side.wall is not None else "no verdict"
    device = fit(clean(side.device), 40) if side.device else "unknown device"
    return f"{fit(clean(names[0]), 48) if names else '?'}{more} · {device} · {clean(wall)}"


def causes(compared: Compared) -> list[Row]:
    """What changed by cause, small changes folded into one row, and the sum."""
    rows = compared.budget
    if not rows:
        return []
    longest = max(compared.before.step_ms or 0.0, compared.after.step_ms or 0.0)
    places = decimals(longest)
    named = {compared.before.cause, compared.after.cause}
    kept = [
        row
        for index, row in enumerate(rows)
        if row.cause in named or (index < CAUSES_SHOWN and abs(row.ms) >= FOLDED_SHARE * longest)
    ]
    left = [row for row in rows if row not in kept]
    kept, left = (rows, []) if len(left) == 1 else (kept, left)
    found = [_cause(row, places) for row in kept]
    if left:
        found.append(_cause(_sum(left, f"other ({len(left)} causes)"), places))
    return [*found, _cause(_sum(rows, "the step"), places)]


def _cause(row: CauseChange, places: int) -> Row:
    return Row(clean(row.wall or ""), clean(row.cause), *_figures(row, places), row.ms)


def _sum(rows: Iterable[CauseChange], name: str) -> CauseChange:
    every = list(rows)
    before, after = sum(row.before_ms for row in every), sum(row.after_ms for row in every)
    return CauseChange(None, name, before, after, sum(row.ms for row in every))


def changed_kernels(compared: Compared, most: int | None = KERNELS_SHOWN) -> list[Row]:
    """Kernels under short names; where two would bear the same one, under the whole of theirs."""
    told = compared.kernels[:KERNELS_SHOWN]  # by which all are written, however many are shown
    places = decimals(max((max(row.before_ms, row.after_ms) for row in told), default=0.0))
    shown = compared.kernels[:most]
    short = [kernel_name(row.name) for row in shown]
    return [
        Row(row.what, name if short.count(name) == 1 else clean(row.name), *_figures(row, places), row.ms)
        for row, name in zip(shown, short, strict=True)
    ]


def _figures(row: CauseChange | KernelChange, places: int) -> tuple[str, str, str]:
    change = f"{row.ms:+.{places}f}".replace("-", "−")
    return (
        _figure(row.before_ms, places),
        _figure(row.after_ms, places),
        change if change.strip("+−0.") else "0",
    )


def _figure(ms: float, places: int) -> str:
    return f"{ms:.{places}f}".replace("-", "−") if ms else "-"


def environment(compared: Compared) -> list[tuple[str, str]]:
    """What is not the same on both sides."""
    found = []
    for row in compared.environment:
        if row.what == "finding":
            found.append(
                (f"only {'B' if row.before is None else 'A'}", brief(row.before or row.after or "", 200))
            )
        else:
            found.append((clean(row.what), f"{_value(row.before)} → {_value(row.after)}"))
    return found


def _value(text: str | None) -> str:
    return brief(text, 60) if text else "unknown" if text is None else "none"


def _table(label: str, name: str, rows: Sequence[Row], width: int) -> list[str]:
    wide = [max(len(getattr(row, field)) for row in rows) for field in ("before", "after", "change")]
    wide = [max(size, least) for size, least in zip(wide, (1, 1, 6), strict=True)]
    # A document may be anybody's: names in it are cut before they take all the room.
    rows = [msgspec.structs.replace(row, label=fit(row.label, LONGEST_LABEL)) for row in rows]
    first = 2 + max(len(label), *(len(row.label) for row in rows))
    room = max(width - 2 - first - sum(wide) - 2 * len(wide), 1)
    lines = []
    for row in (Row(label, name, "A", "B", "change"), *rows):
        figures = zip((row.before, row.after, row.change), wide, strict=True)
        cells = "".join(f"  {figure:>{size}}" for figure, size in figures)
        lines.append(f"  {row.label:<{first}}{fit(row.name, room):<{room}}{cells}")
    return lines


def _grid(label: str, name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = [f"| {label} | {name} | A, ms | B, ms | change |", "|---|---|--:|--:|--:|"]
    for row in rows:
        cells = (row.label, fit(row.name, 60), row.before, row.after, row.change)
        lines.append(f"| {' | '.join(escape(cell) for cell in cells)} |")
    return "\n".join(lines)


def _labelled(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Two columns; the second wraps under itself."""
    rows = [(fit(label, LONGEST_LABEL), text) for label, text in rows]
    first = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, text in rows:
        lines += _wrapped(text, width, f"  {label:<{first}}  ", " " * (first + 4))
    return lines


def _wrapped(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    ) or [first]


def _more(count: int) -> list[str]:
    return [f"    … {count} more in --json"] if count > 0 else []
