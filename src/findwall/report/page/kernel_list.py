"""The kernels, longest first: the figures of `--top`, with the floor and what bounds them."""

from __future__ import annotations

from findwall.model.diagnosis import Diagnosis, KernelRow
from findwall.report import phrases
from findwall.report.page.markup import Markup, element, section
from findwall.report.page.roofline import BOUND_CLASS, count_of
from findwall.report.printable_names import brief, clean, fit, kernel_name
from findwall.report.texts.top import busy_ms, figures
from findwall.units import format_bytes

NOTE = "All figures are {}. The floor is the least time this machine needs for the work. A heading sorts."
COLUMNS = (
    ("op", ""),
    ("kernel", ""),
    ("class", ""),
    ("ms/step", "number"),
    ("of busy", "number"),
    ("calls", "number"),
    ("floor ms", "number"),
    ("FLOPs", "number"),
    ("bytes", "number"),
    ("bound", ""),
)
COUNTED_SHOWN = 20  # kernels with a sentence each; the document holds all
LONGEST_NAME = 36  # characters in a cell; the whole name is its title


def kernels(diagnosis: Diagnosis) -> Markup:
    rows = sorted(diagnosis.kernels, key=lambda row: -row.ms)
    if not rows:
        return section("kernels", "Kernels", element("p", "This input holds no ops or kernels."))
    busy = busy_ms(diagnosis)
    unit = "ms/step" if phrases.whole(diagnosis) == "step" else "ms"
    heads = ((unit if name == "ms/step" else name, kind) for name, kind in COLUMNS)
    head = element("tr", *(_head(name, kind, name == unit) for name, kind in heads))
    body = [_row(row, busy) for row in rows]
    table = element(
        "table",
        element("thead", head),
        element("tbody", *body),
        class_="kernels sortable",
    )
    box = element(
        "div", table, class_="scroll tall", tabindex=0, role="region", aria_label="Table of kernels"
    )
    of = "per step" if phrases.whole(diagnosis) == "step" else "of all calls together"
    return section("kernels", "Kernels", box, *_counted(diagnosis), note=NOTE.format(of))


def _counted(diagnosis: Diagnosis) -> list[Markup]:
    """What the counters of Nsight Compute make of each kernel, in words."""
    told = [
        element(
            "li",
            element("span", fit(kernel_name(one.name), LONGEST_NAME), class_="mono"),
            f": {clean(one.sentence)} {clean(one.helps)}",
        )
        for one in diagnosis.counted[:COUNTED_SHOWN]
    ]
    return [element("ul", *told)] if told else []


def _head(name: str, kind: str, is_sorted: bool) -> Markup:
    return element(
        "th",
        element("button", name, type="button"),
        class_=kind or None,
        scope="col",
        aria_sort="descending" if is_sorted else None,
    )


def _row(row: KernelRow, busy: float) -> Markup:
    told = figures(row, busy)
    name = fit(kernel_name(row.name).removeprefix("aten::"), LONGEST_NAME)
    op = clean(row.op or "").removeprefix("aten::")
    whole = brief(row.name, 300)
    return element(
        "tr",
        element("td", fit(op, LONGEST_NAME)),
        element("td", name, title=whole if whole != name else None, class_="mono"),
        element("td", row.class_),
        _number(told.ms, row.ms),
        _number(told.share, row.ms),
        _number(told.calls, row.calls),
        _number(told.floor, row.floor_ms),
        _number("?" if row.flops is None else count_of(row.flops), row.flops),
        _number("?" if row.bytes is None else format_bytes(row.bytes), row.bytes),
        element(
            "td",
            element("span", "", class_="swatch"),
            row.bound,
            class_=BOUND_CLASS.get(row.bound, "wall-none"),
        ),
    )


def _number(said: str, value: float | None) -> Markup:
    """A figure, with the value it is sorted by; what is not known sorts last."""
    return element("td", said, class_="number", data_value="" if value is None else f"{value:.6g}")
