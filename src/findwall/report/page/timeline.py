"""One step as a timeline: the columns that the page's script draws from, packed."""

from __future__ import annotations

import base64
import zlib

from findwall.model.catalogue import WALL_OF
from findwall.model.diagnosis import Diagnosis
from findwall.model.series import Series, StepTimeline
from findwall.report.page.markup import Markup, element, embedded, joined, prose, section
from findwall.report.printable_names import brief, clean, fit, kernel_name
from findwall.units import NS_PER_MS, format_ms

LONGEST_NAME = 160  # characters: longer ones are cut in their middle
PACKING = 6  # zlib's level: more takes longer and saves a percent

HELP = (
    "Drag, or press the arrow keys, to move; turn the wheel, or press + and −, to zoom; 0 shows all. "
    "↑ ↓ n p go from event to event. Enter in the search field goes to the next one found."
)


def timeline(diagnosis: Diagnosis, series: Series) -> Markup:
    step = series.timeline
    if step is None or not step.events:
        why = series.why_no_timeline or "The traced step holds no events."
        return section("timeline", "One step", element("p", prose(why)))
    tools = element(
        "div",
        element("label", joined("Search "), element("input", type="search", id="find", autocomplete="off")),
        element("output", "", id="found", for_="find"),
        *(
            element("button", sign, type="button", data_do=do, aria_label=label)
            for sign, do, label in (
                ("−", "out", "zoom out"),
                ("+", "in", "zoom in"),
                ("all", "all", "show all"),
            )
        ),
        class_="tools",
    )
    canvas = element(
        "div",
        element(
            "canvas",
            "",
            id="events",
            tabindex=0,
            role="application",
            aria_label=f"Timeline of one step. {HELP}",
            aria_describedby="at-cursor",
        ),
        class_="canvas-box",
    )
    needs_script = element("noscript", element("p", "The timeline is drawn by a script."))
    at_cursor = element("p", HELP, id="at-cursor", aria_live="polite")
    return section(
        "timeline",
        "One step",
        needs_script,
        tools,
        canvas,
        at_cursor,
        note=_said(diagnosis, series, step),
    )


def _said(diagnosis: Diagnosis, series: Series, step: StepTimeline) -> str:
    length = format_ms((step.step_to - step.step_from) * step.unit_ns / NS_PER_MS)
    what = f"a {step.kind} step" if step.kind else "a step"
    rank = f" of rank {series.rank}" if diagnosis.source.ranks > 1 else ""
    parts = [
        f"{what[0].upper()}{what[1:]}{rank} as it was traced, {length} under the profiler.",
        f"{step.events:,} events.",
        "Kernels and gaps have the colour of the wall that their time counts for; pale gaps are there only "
        "while it is profiled.",
    ]
    if step.left_out:
        parts.append(f"{step.left_out:,} short events of the host are left out.")
    return " ".join(parts)


def packed(series: Series) -> Markup:
    """The data of the timeline, for the script."""
    step = series.timeline
    if step is None or not step.events:
        return Markup("")
    columns = step.start + step.length + step.name + step.cause
    return embedded(
        "step-events",
        {
            "count": step.events,
            "unit": step.unit_ns,
            "span": step.span,
            "step": [step.step_from, step.step_to],
            "tracks": [[clean(track.label), track.side] for track in step.tracks],
            "lanes": [[lane.track, lane.depth, lane.count] for lane in step.lanes],
            "names": [fit(brief(kernel_name(name), 400), LONGEST_NAME) for name in step.names],
            "causes": [[cause, WALL_OF.get(cause, "none")] for cause in step.causes],
            "columns": base64.b64encode(zlib.compress(columns, PACKING)).decode(),
        },
    )
