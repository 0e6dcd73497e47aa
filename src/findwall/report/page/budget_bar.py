"""The budget: one bar of the whole step, then each cause with what it takes and what could come back."""

from __future__ import annotations

from findwall.model.catalogue import WALLS
from findwall.model.claims import Evidence
from findwall.model.diagnosis import Diagnosis
from findwall.report import phrases
from findwall.report.page.markup import Markup, across, element, joined, section
from findwall.report.printable_names import clean
from findwall.units import format_ms

NOTE = (
    "Every millisecond of the {} is given to exactly one cause. The full colour is what a perfect fix "
    "could give back, the pale part is the floor. Open a cause for its evidence."
)
# Pixels, for names under the bar: what the bar is wide, what a letter takes. Chosen by hand.
WIDE_SCREEN, PHONE, CHARACTER = 1000, 360, 6.8
LABELLED_ON_PHONES = 0.36  # of the bar: narrower pieces bear their name on wide screens alone
BAR_HEIGHT = 30  # pixels; the names stand below it
UNEXPLAINED = "unknown"


def wall_class(wall: str | None) -> str:
    return f"wall-{wall}" if wall in WALLS else "wall-none"


def budget(diagnosis: Diagnosis) -> Markup:
    bars = phrases.bars(diagnosis, folded=False)
    if not bars:
        return section("budget", "The budget", element("p", "No step time is known, so there is no budget."))
    total = sum(bar.ms for bar in bars)
    whole = phrases.whole(diagnosis)
    step = f"The {whole}: {phrases.step(diagnosis)}"
    return section(
        "budget",
        "The budget",
        element("p", step, class_="step-line"),
        _stack(bars, total, whole),
        _legend(bars),
        _table(diagnosis, bars),
        note=NOTE.format(whole),
    )


def _named(bar: phrases.Bar) -> str:
    return f"{bar.wall} / {bar.cause}" if bar.wall else bar.cause


def _order(bar: phrases.Bar) -> tuple[int, float]:
    walls = list(WALLS)
    return (walls.index(bar.wall) if bar.wall in walls else len(walls), -bar.ms)


def _stack(bars: list[phrases.Bar], total: float, whole: str) -> Markup:
    """One bar, causes of a wall side by side, the walls always in the same order."""
    pieces, at = [], 0.0
    for bar in sorted(bars, key=_order):
        width = 100.0 * bar.ms / total
        pieces.append(_piece(bar, at, width, whole))
        at += width
    said = "; ".join(f"{bar.cause} {bar.time} ms ({bar.share})" for bar in bars)
    return element(
        "svg",
        *pieces,
        class_="stack",
        role="img",
        aria_label=f"The {whole} as one bar: {said}",
        height=BAR_HEIGHT + 34,
    )


def _piece(bar: phrases.Bar, at: float, width: float, whole: str) -> Markup:
    back = 100.0 * min(bar.recoverable_ms or 0.0, bar.ms) / bar.ms
    inside = [
        element("title", f"{_named(bar)}: {bar.time} ms, {bar.share} of the {whole}"),
        element("rect", width="100%", height=BAR_HEIGHT, class_="floor"),
        element("rect", width=across(back), height=BAR_HEIGHT, class_="back"),
    ]
    room = width / 100 * (WIDE_SCREEN if width < 100 * LABELLED_ON_PHONES else PHONE)
    if CHARACTER * len(bar.cause) < room:
        seen = None if width >= 100 * LABELLED_ON_PHONES else "on-wide"
        inside.append(element("text", bar.cause, x=1, y=BAR_HEIGHT + 16, class_=seen))
        inside.append(element("text", f"{bar.time} ms", x=1, y=BAR_HEIGHT + 31, class_=f"time {seen or ''}"))
    inside.append(element("rect", width=1, height=BAR_HEIGHT, class_="edge"))
    return element(
        "svg", *inside, x=across(at), width=across(width), height="100%", class_=wall_class(bar.wall)
    )


def _legend(bars: list[phrases.Bar]) -> Markup:
    there = {bar.wall for bar in bars}
    walls = [wall for wall in WALLS if wall in there] + ([""] if there - set(WALLS) else [])
    return element(
        "ul",
        *(
            element("li", element("span", "", class_="swatch"), wall or UNEXPLAINED, class_=wall_class(wall))
            for wall in walls
        ),
        class_="legend",
        aria_label="Walls",
    )


def _table(diagnosis: Diagnosis, bars: list[phrases.Bar]) -> Markup:
    longest = max(bar.ms for bar in bars)
    head = element(
        "div",
        *(element("span", name) for name in ("cause", "spent and recoverable", "ms", "share", "recoverable")),
        class_="causes-head",
        aria_hidden="true",
    )
    evidence = {clean(row.cause): row.evidence for row in diagnosis.budget}
    rows = [_cause(diagnosis, bar, longest, evidence.get(bar.cause, [])) for bar in bars]
    return element("div", head, *rows, class_="causes")


def _cause(diagnosis: Diagnosis, bar: phrases.Bar, longest: float, evidence: list[Evidence]) -> Markup:
    is_wall = bar.cause == diagnosis.wall.cause
    drawn = element(
        "svg",
        element("rect", width=across(100 * bar.ms / longest), height="100%", class_="floor"),
        element(
            "rect",
            width=across(100 * min(bar.recoverable_ms or 0.0, bar.ms) / longest),
            height="100%",
            class_="back",
        ),
        height=12,
        aria_hidden="true",
    )
    summary = element(
        "summary",
        element(
            "span",
            element("span", "", class_="swatch"),
            element("span", bar.wall, class_="of-wall"),
            element("span", bar.cause, class_="cause-name"),
        ),
        drawn,
        element("span", bar.time, element("small", bar.ends), class_="ms"),
        element("span", bar.share, class_="share"),
        element("span", bar.recoverable, class_="recoverable"),
    )
    return element(
        "details",
        summary,
        _evidence(bar, evidence),
        class_=f"cause {wall_class(bar.wall)}{' the-wall' if is_wall else ''}",
        open=is_wall,
    )


def _evidence(bar: phrases.Bar, evidence: list[Evidence]) -> Markup:
    lines = []
    for said, item in zip(bar.evidence, evidence, strict=True):
        behind = f" ({clean(item.line)})" if item.line else ""
        is_behind = bool(behind) and said.endswith(behind)
        place = element("code", item.line, class_="line") if is_behind else None
        plain = said.removesuffix(behind) if is_behind else said
        time = f"{format_ms(item.ms)} " if item.ms is not None and format_ms(item.ms) not in said else ""
        lines.append(element("li", time, plain, " " if place else "", place))
    told = (
        element("ul", *lines) if lines else element("p", "The document holds no evidence of its own for it.")
    )
    name = bar.cause if bar.wall else ""
    more = element("p", joined("What it is: "), element("code", f"findwall explain {name}")) if name else None
    return element("div", told, more, class_="evidence")
