"""A page of memory alone: what the peak consists of, the lines that hold it, and what makes it smaller."""

from __future__ import annotations

from collections.abc import Sequence

from findwall.model.answers.memory_answer import Memory
from findwall.model.diagnosis import Diagnosis
from findwall.report import phrases
from findwall.report.page.markup import Markup, element, joined, listed, prose, section
from findwall.report.printable_names import clean
from findwall.report.texts import memory_text
from findwall.units import format_gib, format_share

MEMORY_PARTS = (
    ("verdict", "Memory"),
    ("kinds", "Kinds"),
    ("lines", "Lines"),
    ("ladder", "What makes it smaller"),
    ("reproduce", "Reproduce"),
)
MEMORY_BESIDE = (("memory", "Memory"), *MEMORY_PARTS[1:-1])  # of a step: what else it says of memory


def memory_sections(diagnosis: Diagnosis) -> Markup:
    memory = diagnosis.memory
    return joined(_top(diagnosis), _kinds(memory), _lines(memory), _ladder(memory))


def memory_beside(diagnosis: Diagnosis) -> Markup | None:
    """The same on the page of a step, where it is known what the peak consists of."""
    memory = diagnosis.memory
    if not memory.kinds:
        return None
    told = [f"{label}: {text}" for label, text in memory_text.facts(memory)]
    return joined(section("memory", "Memory", listed(told)), _kinds(memory), _lines(memory), _ladder(memory))


def _top(diagnosis: Diagnosis) -> Markup:
    title, sentence = phrases.verdict(diagnosis)
    notes = phrases.notes(diagnosis)
    return element(
        "section",
        element("p", title, class_="kicker"),
        element("h1", title, class_="visually-hidden", id="verdict-title"),
        element("p", prose(sentence), class_="sentence"),
        listed([f"{label}: {text}" for label, text in memory_text.facts(diagnosis.memory)]),
        listed(notes) if notes else None,
        id="verdict",
        class_="no-verdict",
        aria_labelledby="verdict-title",
    )


def _kinds(memory: Memory) -> Markup:
    rows = [(memory_text.kind(row), row.gib, row.count, "") for row in memory.kinds]
    note = "Every byte that was requested at the peak is of one kind, by when it is made and freed."
    return section("kinds", "What the peak consists of", _table("kind", rows, memory), note=note)


def _lines(memory: Memory) -> Markup:
    rows = [(clean(row.line or "not known"), row.gib, row.count, row.kind) for row in memory.lines]
    note = "Autograd's own thread runs no line of the job."
    return section("lines", "Lines that hold it", _table("line", rows, memory), note=note)


def _table(first: str, rows: Sequence[tuple[str, float, int, str]], memory: Memory) -> Markup:
    whole = memory.peak_gib or 0.0
    if not rows or not whole:
        return element("p", "This input does not say.")
    heads = [(first, ""), ("memory", "number"), ("share", "number"), ("tensors", "number")]
    heads += [("mostly", "")] if any(row[3] for row in rows) else []
    head = element("tr", *(element("th", name, class_=kind or None, scope="col") for name, kind in heads))
    body = [_row(row, whole, len(heads) > 4) for row in rows]
    table = element("table", element("thead", head), element("tbody", *body), class_="kernels")
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"Memory by {first}")


def _row(row: tuple[str, float, int, str], whole: float, has_kind: bool) -> Markup:
    name, gib, count, kind = row
    return element(
        "tr",
        element("td", name, class_="mono"),
        element("td", format_gib(gib), class_="number"),
        element("td", format_share(gib / whole), class_="number"),
        element("td", f"{count:,}", class_="number"),
        element("td", kind) if has_kind else None,
    )


def _ladder(memory: Memory) -> Markup:
    told = memory_text.rungs(memory) or ["Nothing that findwall knows makes this peak smaller."]
    told += [clean(one.why) for one in memory.not_predicted]
    return section("ladder", "What makes it smaller", listed(told))
