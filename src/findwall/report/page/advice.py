"""What helps, what was tried, what is not worth it, what was missing, and how to see all this again."""

from __future__ import annotations

import shlex

from findwall.model.diagnosis import Diagnosis, NotWorthIt, Prescription
from findwall.model.series import Series
from findwall.report import fix_phrases, phrases
from findwall.report.page.markup import Markup, across, element, listed, prose, section
from findwall.report.page.verdict_box import speedup
from findwall.report.printable_names import clean
from findwall.report.texts import memory_text
from findwall.report.texts.trials import row_of_trial
from findwall.units import format_ms

NO_GAIN_SAID = 1.005  # times faster: less rounds to nothing


def fixes(diagnosis: Diagnosis) -> Markup:
    """Every fix with its number, the interval drawn against today's step."""
    if not diagnosis.prescriptions:
        return section(
            "fixes",
            "What helps",
            element("p", "No fix is known that would move this wall."),
            _tried(diagnosis),
        )
    rows = [_fix(item, diagnosis.step.ms) for item in diagnosis.prescriptions]
    head = ("fix", "step after it", "faster", "what to do")
    heads = element("tr", *(element("th", name, scope="col") for name in head))
    table = element("table", element("thead", heads), element("tbody", *rows), class_="fixes")
    said = "; ".join(
        part
        for part in (fix_phrases.basis(diagnosis.prescriptions), fix_phrases.safety(diagnosis.prescriptions))
        if part
    )
    note = element("p", said, class_="note") if said else None
    return section("fixes", fix_phrases.advised(diagnosis), table, note, _tried(diagnosis))


def _fix(item: Prescription, today_ms: float | None) -> Markup:
    said = fix_phrases.SAFETY[item.safety]
    warning = (
        element("span", said, class_="tag", title=fix_phrases.SAFETY_MEANS[item.safety]) if said else None
    )
    probed = element("span", "probed", class_="tag") if item.basis == "probed" else None
    return element(
        "tr",
        element("th", " + ".join(item.fixes), " ", warning, probed, scope="row"),
        element(
            "td",
            fix_phrases.step_after(item.step_ms) or "not known",
            _interval(item, today_ms),
            data_label="step after it",
        ),
        element("td", speedup(item), class_="nowrap", data_label="faster"),
        element("td", prose(item.how)),
    )


def _interval(item: Prescription, today_ms: float | None) -> Markup | None:
    """From nothing to today's step: where the step would come to lie."""
    step = item.step_ms
    if not today_ms or step.low is None:
        return None
    scale = 100.0 / max(today_ms, step.high or 0.0)
    high = step.high if step.high is not None and step.mid is not None else step.low
    drawn = [
        element("rect", y=5, width=across(scale * today_ms), height=2, class_="axis-line"),
        element(
            "rect",
            x=across(scale * step.low),
            y=2,
            width=across(max(scale * (high - step.low), 0.8)),
            height=8,
            class_="interval",
        ),
    ]
    if step.mid is not None:
        drawn.append(element("rect", x=across(scale * step.mid), y=0, width=2, height=12, class_="mid"))
    return element("svg", *drawn, height=12, class_="interval-chart", aria_hidden="true")


def _tried(diagnosis: Diagnosis) -> Markup | None:
    if not diagnosis.trials:
        return None
    return element(
        "div", element("h3", "What was tried"), listed([row_of_trial(one) for one in diagnosis.trials])
    )


def not_worth_it(diagnosis: Diagnosis) -> Markup:
    told, obvious = fix_phrases.refused(diagnosis), [one for one in diagnosis.not_worth_it if one.obvious]
    title = "What is not worth it"
    if not told and not obvious:
        return section("not-worth-it", title, element("p", "Nothing was ruled out."))
    more = None
    if obvious:
        more = element(
            "details",
            element("summary", f"{len(obvious)} more that nobody would try here"),
            _refusals(obvious),
        )
    return section("not-worth-it", title, _refusals(told), more)


def _refusals(items: list[NotWorthIt]) -> Markup:
    return element(
        "dl",
        *(
            element(
                "div", element("dt", ", ".join(item.fixes), _at_most(item)), element("dd", prose(item.why))
            )
            for item in items
        ),
        class_="refusals",
    )


def _at_most(item: NotWorthIt) -> Markup | None:
    if item.at_most_speedup is None or item.at_most_speedup < NO_GAIN_SAID:
        return None
    return element("span", f"at most {item.at_most_speedup:.2f}×", class_="tag")


def missing(diagnosis: Diagnosis) -> Markup:
    notes = phrases.notes(diagnosis)
    content = listed(notes) if notes else element("p", "Nothing was missing.")
    return section("missing", "What was missing, estimated or refused", content)


def reproduce(diagnosis: Diagnosis, series: Series, version: str) -> Markup:
    paths = [clean(path) for path in diagnosis.source.paths]
    commands = []
    if series.command:
        commands.append(
            ("measure it again", "findwall run " + " ".join(map(shlex.quote, map(clean, series.command))))
        )
    if paths:
        commands.append(("read it again", "findwall read " + " ".join(map(shlex.quote, paths))))
        commands.append(("draw this page again", "findwall report " + " ".join(map(shlex.quote, paths))))
    if series.command and diagnosis.prescriptions:
        call = " ".join(map(shlex.quote, map(clean, series.command)))
        commands.append(("try the fixes", f"findwall try {call}"))
    rows = [
        element("div", element("dt", what), element("dd", element("code", call))) for what, call in commands
    ]
    facts = [
        f"findwall {version}",
        phrases.job(diagnosis),
        f"started {series.started}" if series.started else "",
        *(f"{name} {value}" for name, value in series.versions.items() if name != "findwall"),
        f"peak memory {memory_text.peak(diagnosis.memory)}" if diagnosis.memory.peak_gib is not None else "",
        f"profiled step {format_ms(diagnosis.step.profiled_ms)}"
        if diagnosis.step.profiled_ms is not None
        else "",
    ]
    said = " · ".join(fact for fact in facts if fact)
    return section(
        "reproduce",
        "How to reproduce it",
        element("dl", *rows, class_="commands"),
        element("p", said, class_="note"),
    )
