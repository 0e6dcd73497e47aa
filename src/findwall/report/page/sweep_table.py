"""Batches of other sizes: what was found, and a row for each size."""

from __future__ import annotations

from findwall.model.answers.sweep_answer import Sweep, SweepPoint
from findwall.model.diagnosis import Diagnosis
from findwall.report.page.markup import Markup, element, listed, section
from findwall.report.printable_names import clean
from findwall.report.texts import sweep_text

SWEEP_PART = ("sweep", "Batch sizes")


def batch_sizes(diagnosis: Diagnosis) -> Markup | None:
    sweep = diagnosis.sweep
    if sweep is None:
        return None
    says = listed([clean(text) for text in sweep.says])
    return section("sweep", SWEEP_PART[1], says, _table(sweep), note=sweep_text.figures(sweep))


def _table(sweep: Sweep) -> Markup:
    kinds = [*("number" for _ in sweep_text.COLUMNS[:-1]), None, None]
    names = (*sweep_text.COLUMNS, "")
    heads = zip(names, kinds, strict=True)
    head = element("tr", *(element("th", name, class_=kind, scope="col") for name, kind in heads))
    body = [_row(sweep, point, kinds) for point in sweep.points]
    table = element("table", element("thead", head), element("tbody", *body), class_="kernels")
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Batch sizes")


def _row(sweep: Sweep, point: SweepPoint, kinds: list[str | None]) -> Markup:
    cells = (*sweep_text.row(sweep, point), sweep_text.remark(sweep, point))
    return element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(cells, kinds, strict=True)))
