"""The top of the page: the wall, what to try first, the figures, the four answers."""

from __future__ import annotations

from findwall.model.diagnosis import Diagnosis, Prescription
from findwall.report import fix_phrases, phrases
from findwall.report.markdown import MARKS
from findwall.report.page.markup import Markup, element, listed, prose
from findwall.units import format_ms, format_share

QUESTIONS = {
    "stable": "Is the step time stable?",
    "busy": "Is the device busy?",
    "matmul": "Is it busy with matmuls?",
    "peak": "Are those near the ceiling?",
}


def tone(diagnosis: Diagnosis) -> str:
    """The class that colours the verdict: its wall's, or that there is none."""
    wall = diagnosis.wall
    if wall.wall is None:
        return "no-verdict"
    return f"wall-{wall.wall}"


def opening(title: str, sentence: str) -> tuple[Markup, ...]:
    kicker, _, named = title.partition(": ")
    return (
        element("p", kicker, class_="kicker"),
        element("h1", named or kicker, class_=None if named else "visually-hidden", id="verdict-title"),
        element("p", prose(sentence), class_="sentence"),
    )


def top(diagnosis: Diagnosis) -> Markup:
    return element(
        "section",
        *opening(*phrases.verdict(diagnosis)),
        _known(diagnosis),
        _first_fix(diagnosis),
        _figures(diagnosis),
        _questions(diagnosis),
        id="verdict",
        class_=tone(diagnosis),
        aria_labelledby="verdict-title",
    )


def _known(diagnosis: Diagnosis) -> Markup | None:
    """Without a verdict: the most that is known, and what is missing."""
    if diagnosis.wall.wall is not None:
        return None
    known, missing = phrases.known(diagnosis), phrases.notes(diagnosis)[:3]
    parts = []
    if known:
        parts.append(element("div", element("h2", "What is known"), listed(known)))
    if missing:
        parts.append(element("div", element("h2", "What is missing"), listed(missing)))
    return element("div", *parts, class_="known")


def speedup(item: Prescription) -> str:
    """How much faster, as far as that is known."""
    gain = item.speedup
    if gain.mid is not None:
        return f"{gain.mid:.2f}×"
    return f"up to {gain.high:.2f}×" if gain.high is not None else ""


def _first_fix(diagnosis: Diagnosis) -> Markup | None:
    if not diagnosis.prescriptions:
        return None
    first = diagnosis.prescriptions[0]
    faster, then = speedup(first), fix_phrases.step_after(first.step_ms)
    today = format_ms(diagnosis.step.ms) if diagnosis.step.ms else ""
    number = element(
        "p",
        element("strong", faster) if faster else None,
        " faster" if faster else "",
        element("span", f"{today} → {then}" if today and then else then, class_="from-to") if then else None,
        class_="number",
    )
    return element(
        "div",
        element(
            "p",
            element("span", "Try first", class_="kicker"),
            element("b", " + ".join(first.fixes)),
            _warning(first),
        ),
        number if faster or then else None,
        element("p", prose(first.how), class_="how"),
        class_="first-fix" if faster or then else "first-fix bare",
    )


def _warning(item: Prescription) -> Markup | None:
    said = fix_phrases.SAFETY[item.safety]
    return element("span", said, class_="tag", title=fix_phrases.SAFETY_MEANS[item.safety]) if said else None


def _figures(diagnosis: Diagnosis) -> Markup:
    """Step time, speed and MFU: a large figure each, and under it what belongs to it."""
    step = diagnosis.step
    label = "step time" if phrases.whole(diagnosis) == "step" else phrases.whole(diagnosis)
    cells = [(label, format_ms(step.ms), phrases.step(diagnosis))]
    speed, _, memory = phrases.speed(diagnosis).partition(" · ")
    if diagnosis.throughput is not None:
        cells.append(("throughput", speed, memory))
    elif speed:
        cells.append(("peak memory", speed.removeprefix("peak memory "), ""))
    if said := phrases.mfu(diagnosis):
        cells.append(("MFU", format_share(diagnosis.mfu.mfu), said))
    if phases := phrases.phases(diagnosis):
        cells.append(("phases of the step", "", phases))
    return element("dl", *(_figure(*cell) for cell in cells), class_="figures")


def _figure(label: str, figure: str, beside: str) -> Markup:
    said = [element("dd", figure, class_="figure")] if figure else []
    beside = beside.removeprefix(figure).strip(" ·")
    said += [element("dd", beside, class_="beside")] if beside else []
    return element("div", element("dt", label), *said)


def _questions(diagnosis: Diagnosis) -> Markup | None:
    if not diagnosis.questions:
        return None
    items = [
        element(
            "li",
            element("span", MARKS[question.answer], class_=f"mark {question.answer}", aria_hidden="true"),
            element(
                "span",
                element("b", QUESTIONS[question.id]),
                element("span", f" {question.answer.capitalize()}. ", class_="answer"),
                prose(question.sentence),
            ),
        )
        for question in diagnosis.questions
    ]
    return element("ol", *items, class_="questions", aria_label="The four questions")
