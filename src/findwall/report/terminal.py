"""The terminal view of a Diagnosis: one screen, 80 columns, plain text where nothing else is understood."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from findwall.model.catalogue import ROOFS
from findwall.model.diagnosis import Diagnosis, Prescription, Question
from findwall.report import fix_phrases, phrases
from findwall.report.printable_names import brief, clean, fit
from findwall.report.stream import is_unicode, to_ascii
from findwall.report.texts import memory_text, ncu_text, ranks_text, sweep_text, watched_text
from findwall.units import format_share

# Columns and lines are chosen by hand, for one screen of 80 columns.
WIDEST_LINE = 100  # columns: longer lines are hard to read
NARROWEST_LINE = 40  # columns: below that the budget's table breaks
FIXES_SHOWN = 4
NOTES_SHOWN = 5
RUNGS_SHOWN = 5
TRIED_FIRST = 2  # of them stand right under the verdict, the others further down
SHORTEST_BAR = 6  # columns: with less room for a bar, the intervals beside it go first
LEGEND_ROOM = 22  # columns that the legend above the bars takes
WALL_STYLES = {
    "compute": "magenta",
    "bandwidth": "blue",
    "overhead": "yellow",
    "data": "green",
    "comms": "cyan",
}


class Glyphs(msgspec.Struct, frozen=True):
    """The signs that are not letters, where the terminal knows them and where it does not."""

    yes: str
    no: str
    unknown: str
    recoverable: str
    floor: str


UNICODE = Glyphs("✔", "✘", "?", "█", "░")
ASCII = Glyphs("+", "x", "?", "#", "-")


def render(diagnosis: Diagnosis, console: Console, is_brief: bool = False) -> None:
    """Draw the view on a console: in colour if it has any, in ASCII if it has no more."""
    text = to_text(
        diagnosis,
        is_brief=is_brief,
        width=min(console.width, WIDEST_LINE),
        color=console.color_system is not None,
        unicode=is_unicode(console.encoding),
    )
    console.file.write(text)
    console.file.flush()


def to_text(
    diagnosis: Diagnosis, width: int = 80, color: bool = False, unicode: bool = True, is_brief: bool = False
) -> str:
    """The view as text of at most `width` columns; `is_brief`: no more than the verdict and what to try."""
    paper = Console(
        file=io.StringIO(),
        width=max(width, NARROWEST_LINE),
        color_system="standard" if color else None,
        force_terminal=color,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    glyphs = UNICODE if unicode else ASCII
    paper.print(Group(*_first(diagnosis, glyphs)))
    if not is_brief:
        paper.print(Group(*_rest(diagnosis, paper.width, glyphs)), crop=False)
    assert isinstance(paper.file, io.StringIO)
    lines = (line.rstrip() for line in paper.file.getvalue().splitlines())
    text = "\n".join(lines) + "\n"
    return text if unicode else to_ascii(text)


def _first(diagnosis: Diagnosis, glyphs: Glyphs) -> Iterator[RenderableType]:
    """What matters: the wall and what to try; without a verdict, the most that is known."""
    yield _verdict(diagnosis, glyphs)
    failed = phrases.out_of_memory(diagnosis)
    yield from _list("out of memory", list(map(Text, failed)), len(failed))
    yield from _list("what is known", [Text(brief(line, 200)) for line in phrases.known(diagnosis)], 3)
    if diagnosis.wall.wall is None:  # the notes say what is missing and how to get it
        yield from _notes(diagnosis)
    yield from _list("what if", [Text(line) for line in fix_phrases.what_if(diagnosis)], 8)
    yield from _fixes("try first", diagnosis.prescriptions[:TRIED_FIRST])


def _rest(diagnosis: Diagnosis, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
    """What carries it: the budget, the questions, then all else."""
    yield Text()
    yield Text(phrases.job(diagnosis), style="bold")
    if memory_text.is_alone(diagnosis):
        yield from _memory(diagnosis, width, glyphs)
        return
    if diagnosis.watch is None:
        yield _labelled([(phrases.whole(diagnosis), phrases.step(diagnosis))])
    else:
        yield from _watched(diagnosis, width)
    if diagnosis.sweep is not None:
        yield Text()
        for line in sweep_text.to_text(diagnosis.sweep, width).splitlines():
            yield Text(line, no_wrap=True, overflow="ellipsis")
    rows = phrases.bars(diagnosis)
    if rows:
        yield from _budget(diagnosis, rows, width, glyphs)
    if diagnosis.counted:
        yield from (
            Text(line, no_wrap=True, overflow="ellipsis") for line in ncu_text.lines(diagnosis, width)
        )
    if diagnosis.questions and diagnosis.watch is None:
        yield Text()
        yield _questions(diagnosis.questions, glyphs)
    yield _labelled(_facts(diagnosis))
    if together := ranks_text.facts(diagnosis.ranks):
        yield Text()
        yield _labelled(together)
    if diagnosis.memory.kinds:
        yield from _memory(diagnosis, width, glyphs)
    yield from _advice(diagnosis)
    if diagnosis.wall.wall is not None:
        yield from _notes(diagnosis)


def _memory(diagnosis: Diagnosis, width: int, glyphs: Glyphs) -> Iterator[RenderableType]:
    """What the allocator held: figures, kinds, lines, and what would make it less."""
    memory = diagnosis.memory
    yield _labelled(memory_text.facts(memory, with_peak=memory_text.is_alone(diagnosis)))  # else: the speed
    for line in memory_text.table(memory, width, glyphs.recoverable):
        yield Text(line, no_wrap=True, overflow="ellipsis")
    yield from _list("what makes it smaller", [Text(line) for line in memory_text.rungs(memory)], RUNGS_SHOWN)


def _watched(diagnosis: Diagnosis, width: int) -> Iterator[RenderableType]:
    """Of a job that ran already: what was counted, its ranks, and the command that would tell more."""
    watch = diagnosis.watch
    assert watch is not None
    yield _labelled(watched_text.facts(watch))
    for line in watched_text.table(diagnosis, width):
        yield Text(line, no_wrap=True, overflow="ellipsis")
    if watch.settle:
        yield Text("to measure it", style="bold")
        yield Text(f"  {clean(watch.settle)}", no_wrap=True, overflow="ignore")  # to be copied: one line


def _notes(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    told = phrases.out_of_memory(diagnosis)
    rest = [Text(brief(note, 240)) for note in phrases.notes(diagnosis) if note not in told]
    yield from _list("notes", rest, NOTES_SHOWN)


def _facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = [
        ("speed", phrases.speed(diagnosis)),
        ("MFU", phrases.mfu(diagnosis)),
        ("phases", phrases.phases(diagnosis)),
    ]
    return [(label, text) for label, text in facts if text]


def _labelled(facts: list[tuple[str, str]]) -> Table:
    return _grid((Text(label, style="dim"), Text(text)) for label, text in facts)


def _questions(questions: list[Question], glyphs: Glyphs) -> Table:
    marks = {"yes": (glyphs.yes, "bold green"), "no": (glyphs.no, "bold red")}
    rows = []
    for question in questions:
        mark, style = marks.get(question.answer, (glyphs.unknown, "bold yellow"))
        rows.append((Text.assemble((mark, style), f" {question.id}"), Text(_answer(question))))
    return _grid(rows)


def _answer(question: Question) -> str:
    text = brief(question.sentence, 160)
    if question.value is None or any(character.isdigit() for character in text):
        return text
    return f"{text} {format_share(question.value)}".strip()


def _budget(
    diagnosis: Diagnosis, rows: list[phrases.Bar], width: int, glyphs: Glyphs
) -> Iterator[RenderableType]:
    """Bars drawn to one scale; the solid part is what a perfect fix could give back."""
    longest = max(row.ms for row in rows)
    around = 2 + 10 + 19 + 8 + 13  # what stands left and right of the bar and its time
    times = [row.time + row.ends for row in rows]
    if width - around - max(map(len, times)) < SHORTEST_BAR:  # a narrow window: intervals go before bars do
        times = [row.time for row in rows]
    wide = max(map(len, times))
    room = max(width - around - wide, 4)
    legend = f"{glyphs.recoverable} recoverable {glyphs.floor} floor" if room >= LEGEND_ROOM else ""
    header = f"  {'wall':<10}{'cause':<19}{legend:<{room}}{'ms':>{wide}}{'share':>8}{'recoverable':>13}"
    yield Text(header, "dim", no_wrap=True, overflow="ellipsis")
    for row, time in zip(rows, times, strict=True):
        bold = "bold" if row.cause == diagnosis.wall.cause else ""
        yield Text.assemble(
            (f"  {fit(row.wall, 9):<10}", WALL_STYLES.get(row.wall, "dim")),
            (f"{fit(row.cause, 18):<19}", bold),
            *_bar(row, longest, room, glyphs),
            (f"{time:>{wide}}{row.share:>8}{row.recoverable:>13}", bold),
            no_wrap=True,
            overflow="ellipsis",
        )


def _bar(row: phrases.Bar, longest: float, room: int, glyphs: Glyphs) -> list[tuple[str, str]]:
    cells = max(room - 2, 1)
    total = max(round(cells * row.ms / longest), 1)
    solid = round(cells * min(row.recoverable_ms or 0.0, row.ms) / longest)
    style = WALL_STYLES.get(row.wall, "dim")
    rest = " " * (room - total)
    return [(glyphs.recoverable * solid, style), (glyphs.floor * (total - solid), f"dim {style}"), (rest, "")]


def _verdict(diagnosis: Diagnosis, glyphs: Glyphs) -> Panel:
    title, sentence = phrases.verdict(diagnosis)
    style = "yellow" if diagnosis.wall.wall is None else "green" if diagnosis.wall.cause in ROOFS else "red"
    return Panel(
        Text(brief(sentence, 480), style="bold"),
        title=Text(title, style=f"bold {style}"),
        title_align="left",
        border_style=style,
        box=box.HEAVY if glyphs is UNICODE else box.ASCII,
        padding=(0, 1),
    )


def _advice(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    yield from _list("evidence", [Text(brief(line, 200)) for line in phrases.evidence(diagnosis)], 3)
    said = {item.safety for item in diagnosis.prescriptions[:TRIED_FIRST]}
    others = "what else helps" if diagnosis.wall.cause else "also worth a trial"
    yield from _fixes(others, diagnosis.prescriptions[TRIED_FIRST:], said)
    refused = [
        Text.assemble((clean(", ".join(item.fixes)), "bold"), f": {brief(item.why, 130)}")
        for item in fix_phrases.refused(diagnosis)
    ]
    yield from _list("what will not help", refused, 4)
    following = phrases.next_wall(diagnosis)
    if following:
        yield Text.assemble(("next wall  ", "bold"), following)
    if way := fix_phrases.road(diagnosis):
        yield Text.assemble(("road  ", "bold"), way)


def _fixes(
    title: str, items: list[Prescription], explained: Collection[str] = ()
) -> Iterator[RenderableType]:
    """Fixes with their numbers, what those rest on, and what the warnings beside them mean where that was not
    said before."""
    most = FIXES_SHOWN - TRIED_FIRST
    yield from _list(title, [_prescription(item) for item in items], most)
    meaning = fix_phrases.safety([item for item in items[:most] if item.safety not in explained])
    said = "; ".join(text for text in (fix_phrases.basis(items[:most]), meaning) if text)
    if said:
        yield Padding(Text(f"({said})", style="dim"), (0, 0, 0, 2))


def _prescription(item: Prescription) -> Text:
    gain = fix_phrases.gain(item)
    return Text.assemble(
        (clean(" + ".join(item.fixes)), "bold"),
        (f", {gain}" if gain else "", "green"),
        f": {brief(item.how, 260)}",
    )


def _list(title: str, lines: list[Text], most: int) -> Iterator[RenderableType]:
    """A titled list of at most `most` items."""
    if not lines:
        return
    yield Text(title, style="bold")
    yield _grid(((Text("-", style="dim"), line) for line in lines[:most]), gap=1)
    if len(lines) > most:
        yield Text(f"    … {len(lines) - most} more in --json", style="dim")


def _grid(rows: Iterable[tuple[Text, Text]], gap: int = 2) -> Table:
    """Two columns, indented; the second wraps under itself."""
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(Text("  ") + label, text)
    return grid
