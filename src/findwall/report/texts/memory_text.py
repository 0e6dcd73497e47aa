"""The memory block: what the peak consists of, the lines that hold it, and what makes it smaller."""

from __future__ import annotations

from findwall.model.answers.memory_answer import Memory, MemoryKindRow
from findwall.model.diagnosis import Diagnosis
from findwall.model.memory_history import SNAPSHOT
from findwall.report.printable_names import clean, fit
from findwall.units import format_gib, format_share

LINES_SHOWN = 6  # the document holds more
NARROWEST_BAR = 8  # columns
LABEL = 26  # columns of a kind or a line


def is_alone(diagnosis: Diagnosis) -> bool:
    """Whether memory is all that the document speaks of."""
    return diagnosis.source.kind == SNAPSHOT


def ran_out(diagnosis: Diagnosis) -> bool:
    """Whether all that is known of the job is that its memory ended."""
    nothing_else = diagnosis.wall.wall is None and diagnosis.step.ms is None
    return nothing_else and diagnosis.memory.oom is not None and not is_alone(diagnosis)


def facts(memory: Memory, with_peak: bool = True) -> list[tuple[str, str]]:
    """The figures beside the table, each with its label."""
    found = [
        ("peak", peak(memory) if with_peak else ""),
        ("reserved", reserved(memory)),
        ("driver", driver(memory)),
        ("batch", batches(memory)),
    ]
    return [(label, text) for label, text in found if text]


def peak(memory: Memory) -> str:
    """ "22.5 GiB requested, in backward"; always with what it is of."""
    if memory.peak_gib is None:
        return ""
    of = f" {memory.of}" if memory.of != "unknown" else ""
    total = f" of {memory.total_gib:.0f} GiB" if memory.total_gib else ""
    where = f", in {memory.phase}" if memory.phase != "unknown" else ""
    return f"{format_gib(memory.peak_gib)}{of}{total}{where}"


def reserved(memory: Memory) -> str:
    if memory.reserved_gib is None:
        return ""
    text = f"{format_gib(memory.reserved_gib)} at the most"
    found = memory.fragmentation
    if found is not None:
        text += f"; at the peak {format_gib(found.free_gib)} lay free in the cache, "
        text += f"{format_gib(found.largest_free_gib)} in one piece, and rounding took "
        text += format_gib(found.rounding_gib)
    return text


def driver(memory: Memory) -> str:
    calls = memory.driver_calls
    if calls is None or not calls.taken + calls.given_back:
        return ""
    return f"asked for memory {calls.taken:,} times, given some back {calls.given_back:,} times"


def batches(memory: Memory) -> str:
    """ "×2 peaks at 4.3 GiB · ×4 peaks at 8.1 GiB, does not fit · the largest that fits is ×3.1"."""
    found = []
    for one in memory.batches:
        if one.peak_gib.mid is not None:
            fits = {True: ", fits", False: ", does not fit", None: ""}[one.fits]
            found.append(f"×{one.factor:g} peaks at {format_gib(one.peak_gib.mid)}{fits}")
    if memory.largest_batch is not None and memory.largest_batch >= 1:
        found.append(f"the largest that surely fits is ×{memory.largest_batch:.1f}")
    return " · ".join(found)


def table(memory: Memory, width: int, full: str) -> list[str]:
    """Kinds with their bars, then lines; at most `width` columns wide. `full`: the sign that bars are of."""
    whole = memory.peak_gib
    if not memory.kinds or not whole:
        return []
    room = max(width - LABEL - 34, NARROWEST_BAR)
    found = ["", f"  {'kind':<{LABEL}}{'memory':>10}{'share':>8}{'tensors':>9}"]
    for row in memory.kinds:
        bar = full * round(room * row.gib / whole)
        figures = f"{format_gib(row.gib):>10}{format_share(row.gib / whole):>8}{row.count:>9,}"
        found.append(f"  {kind(row):<{LABEL}}{figures}  {bar}".rstrip())
    placed = [row for row in memory.lines if row.line is not None]
    if placed:
        found += ["", f"  {'line':<{LABEL}}{'memory':>10}{'share':>8}{'tensors':>9}  kind"]
    for line in placed[:LINES_SHOWN]:
        figures = f"{format_gib(line.gib):>10}{format_share(line.gib / whole):>8}{line.count:>9,}"
        found.append(f"  {fit(clean(line.line or ''), LABEL - 1):<{LABEL}}{figures}  {line.kind}")
    return found


def kind(row: MemoryKindRow) -> str:
    return f"{row.kind} ({row.phase})" if row.phase != "unknown" else row.kind


def kinds(memory: Memory) -> list[str]:
    """A line a kind, for where there is no room for a table."""
    whole = memory.peak_gib or 0.0
    return [
        f"{kind(row)}: {format_gib(row.gib)} ({format_share(row.gib / whole)})"
        for row in memory.kinds
        if whole
    ]


def rungs(memory: Memory) -> list[str]:
    return [clean(rung.how) for rung in memory.ladder]
