"""The road: today's step, what fixes would make of it, what trials made of it, the roofline."""

from __future__ import annotations

import msgspec

from findwall.model.applied import Trial
from findwall.model.claims import Range
from findwall.model.diagnosis import Diagnosis
from findwall.report import fix_phrases
from findwall.report.page.markup import Markup, across, element, section
from findwall.units import format_interval, format_ms

NOTE = "One bar a stop, all to one scale. A whisker is how sure the figure is."
SINGLE_FIXES = 4  # bars of single fixes: the rest is in the list of fixes; chosen by hand


class Stop(msgspec.Struct, frozen=True):
    """One bar of the road."""

    kind: str  # "today", "bound", "predicted", "measured" or "roofline"
    label: str
    figure: str
    step_ms: Range
    beside: str = ""


def road(diagnosis: Diagnosis) -> Markup:
    stops = _stops(diagnosis)
    if len(stops) < 2:
        why = "No fix of this job has a predicted step, so there is no road to draw."
        return section("road", "The road", element("p", why))
    longest = max(stop.step_ms.high or stop.step_ms.mid or stop.step_ms.low or 0.0 for stop in stops)
    rows = [_row(stop, longest) for stop in stops]
    said = fix_phrases.road(diagnosis)
    return section(
        "road",
        "The road",
        element("ol", *rows, class_="road"),
        element("p", said, class_="said") if said else None,
        note=NOTE,
    )


def _stops(diagnosis: Diagnosis) -> list[Stop]:
    if diagnosis.step.ms is None:
        return []
    today = Range(mid=diagnosis.step.ms)
    stops = [Stop("today", "today", format_ms(diagnosis.step.ms), today, _wall(diagnosis))]
    stops += _predicted(diagnosis)
    stops += [_measured(one) for one in diagnosis.trials if one.measured.mid is not None]
    roofs = [stage for stage in diagnosis.road if stage.what == "roofline"]
    stops += [
        Stop("roofline", "at the roofline", format_ms(stage.step_ms.mid), stage.step_ms) for stage in roofs
    ]
    return stops


def _wall(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.wall.wall} / {diagnosis.wall.cause}" if diagnosis.wall.cause else ""


def _predicted(diagnosis: Diagnosis) -> list[Stop]:
    """The fixes with a number, and the best of them together as the document's road has them."""
    stops = []
    ways = {tuple(stage.fixes): stage for stage in diagnosis.road if stage.what == "predicted"}
    for item in diagnosis.prescriptions[:SINGLE_FIXES]:
        if tuple(item.fixes) in ways:
            continue
        kind = "predicted" if item.step_ms.mid is not None else "bound"
        if item.step_ms.mid is not None or item.step_ms.low is not None:
            figure = fix_phrases.step_after(item.step_ms)
            stops.append(Stop(kind, f"with {' + '.join(item.fixes)}", figure, item.step_ms))
    for fixes, stage in ways.items():
        then = f"then {stage.wall} / {stage.cause}" if stage.cause and stage.wall else ""
        figure = fix_phrases.step_after(stage.step_ms)
        stops.append(Stop("predicted", f"with {' + '.join(fixes)}", figure, stage.step_ms, then))
    return stops


def _measured(one: Trial) -> Stop:
    ends = format_interval(one.measured.low, one.measured.high)
    figure = f"{format_ms(one.measured.mid)} ({ends})"
    return Stop("measured", f"with {one.fix}", figure, one.measured, f"{one.verdict}{', kept' * one.kept}")


def _row(stop: Stop, longest: float) -> Markup:
    step = stop.step_ms
    reached = step.mid if step.mid is not None else step.low or 0.0
    drawn = [element("rect", y=3, width=across(100 * reached / longest), height=14, class_="bar")]
    if step.mid is not None and step.low is not None and step.high is not None:
        low, high = 100 * step.low / longest, 100 * step.high / longest
        drawn.append(element("line", x1=across(low), x2=across(high), y1=10, y2=10, class_="whisker"))
    words = {
        "today": "",
        "roofline": "",
        "bound": "at best",
        "predicted": "predicted",
        "measured": "measured",
    }
    return element(
        "li",
        element(
            "span",
            stop.label,
            element("span", words[stop.kind], class_="tag") if words[stop.kind] else None,
            class_="label",
        ),
        element("svg", *drawn, height=20, aria_hidden="true"),
        element("span", element("b", stop.figure), element("small", stop.beside), class_="stop-figure"),
        class_=f"stop {stop.kind}",
    )
