"""The page of a comparison: what the terminal says of two sides, drawn. Its figures are the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from findwall.model.catalogue import WALLS
from findwall.model.comparison import Compared, to_json
from findwall.report.page.budget_bar import wall_class
from findwall.report.page.markup import (
    NOTHING,
    Markup,
    across,
    element,
    embedded,
    embedded_json,
    joined,
    listed,
    section,
)
from findwall.report.page.verdict_box import opening
from findwall.report.page.whole_page import whole
from findwall.report.printable_names import brief, fit
from findwall.report.texts import comparison_text as words

PARTS = (
    ("verdict", "Verdict"),
    ("causes", "By cause"),
    ("kernels", "Kernels"),
    ("differs", "What differs"),
    ("notes", "Notes"),
)
CAUSES_NOTE = (
    "In ms per step; the changes sum to that of the step. A bar to the right is time that B takes and A does "
    "not."
)
BAR_HEIGHT = 12  # pixels, as in the budget
LONGEST_NAME = 60  # characters, as in the Markdown; the whole name is its title


def compared_page(compared: Compared, version: str = "") -> str:
    """The whole file. The same comparison gives the same bytes."""
    title, _ = words.verdict(compared)
    return whole(
        title=title,
        tone=f"outcome-{compared.step.outcome}",
        job="a comparison",
        parts=PARTS,
        body=joined(
            _verdict(compared),
            _causes(compared),
            _kernels(compared),
            _differs(compared),
            _notes(compared, version),
        ),
        data=joined(
            embedded_json("comparison", to_json(compared).decode()),
            embedded("markdown", words.to_markdown(compared)),
        ),
    )


def _verdict(compared: Compared) -> Markup:
    sides = [
        element("div", element("dt", label), element("dd", text))
        for label, text in words.both_sides(compared)
    ]
    return element(
        "section",
        *opening(*words.verdict(compared)),
        element("dl", *sides, class_="sides"),
        id="verdict",
        aria_labelledby="verdict-title",
    )


def _causes(compared: Compared) -> Markup:
    rows = words.causes(compared)
    title = "Where the step changed"
    if not rows:
        return section("causes", title, element("p", "A side has no budget, so no cause can be told."))
    return section("causes", title, _table("wall", "cause", rows, is_summed=True), note=CAUSES_NOTE)


def _kernels(compared: Compared) -> Markup:
    rows = words.changed_kernels(compared, None)
    title = "Kernels that changed"
    if not rows:
        return section("kernels", title, element("p", "No kernel appeared, vanished or changed much."))
    first, more = rows[: words.KERNELS_SHOWN], rows[words.KERNELS_SHOWN :]
    folded = NOTHING
    if more:
        folded = element("details", element("summary", f"{len(more)} more"), _table("", "kernel", more))
    return section("kernels", title, _table("", "kernel", first), folded, note="In ms per step.")


def _table(label: str, name: str, rows: Sequence[words.Row], is_summed: bool = False) -> Markup:
    """`is_summed`: the last row is the sum of the others."""
    longest = max((abs(row.ms) for row in rows), default=0.0)
    heads = (label or "what", name, "A", "B", "change", "")
    kinds = (None, None, "number", "number", "number", "on-wide")
    head = [
        element("th", head or element("span", "drawn", class_="visually-hidden"), class_=kind, scope="col")
        for head, kind in zip(heads, kinds, strict=True)
    ]
    last = len(rows) - 1 if is_summed else -1
    body = [_row(row, longest, at == last) for at, row in enumerate(rows)]
    table = element(
        "table", element("thead", element("tr", *head)), element("tbody", *body), class_="changes"
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=f"Changes by {name}")


def _row(row: words.Row, longest: float, is_sum: bool) -> Markup:
    name = fit(row.name, LONGEST_NAME)
    return element(
        "tr",
        element("td", element("span", "", class_="swatch") if row.label in WALLS else None, row.label),
        element("th", name, title=brief(row.name, 300) if name != row.name else None, scope="row"),
        *(element("td", figure, class_="number") for figure in (row.before, row.after, row.change)),
        element("td", _bar(row.ms, longest), class_="on-wide"),
        class_=f"{wall_class(row.label)}{' sum' if is_sum else ''}",
    )


def _bar(ms: float, longest: float) -> Markup:
    """To the right of the middle: more than before; to the left: less."""
    width = 50.0 * abs(ms) / longest if longest else 0.0
    return element(
        "svg",
        element("rect", x="50%", width=1, height=BAR_HEIGHT, class_="axis-line"),
        element("rect", x=across(50.0 if ms > 0 else 50.0 - width), width=across(width), height=BAR_HEIGHT),
        height=BAR_HEIGHT,
        class_="change",
        aria_hidden="true",
    )


def _differs(compared: Compared) -> Markup:
    rows = words.environment(compared)
    if not rows:
        said = element("p", "Nothing else is known to differ.")
    else:
        pairs = [element("div", element("dt", what), element("dd", text)) for what, text in rows]
        said = element("dl", *pairs, class_="refusals")
    return section("differs", "What differs besides", said)


def _notes(compared: Compared, version: str) -> Markup:
    said = listed(compared.notes) if compared.notes else element("p", "There is nothing to add.")
    drawn = element("p", f"findwall {version}", class_="note") if version else None
    return section("notes", "Notes", said, drawn)
