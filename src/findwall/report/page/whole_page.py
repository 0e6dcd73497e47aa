"""The page put together: its parts in order, its style and script, and the policy that admits no others."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from findwall.model.diagnosis import Diagnosis, to_json
from findwall.model.series import Series
from findwall.report import phrases
from findwall.report.markdown import to_markdown
from findwall.report.page.advice import fixes, missing, not_worth_it, reproduce
from findwall.report.page.budget_bar import budget
from findwall.report.page.kernel_list import kernels
from findwall.report.page.markup import Markup, embedded, embedded_json, joined, text
from findwall.report.page.memory_table import MEMORY_BESIDE, MEMORY_PARTS, memory_beside, memory_sections
from findwall.report.page.ranks_list import RANKS_PART, ranks_together
from findwall.report.page.road_chart import road
from findwall.report.page.roofline import roofline
from findwall.report.page.step_chart import step_times
from findwall.report.page.sweep_table import SWEEP_PART, batch_sizes
from findwall.report.page.timeline import packed, timeline
from findwall.report.page.verdict_box import tone, top
from findwall.report.texts import memory_text

FRAME_HEIGHT = 620  # pixels: verdict, first fix and figures are seen at once; chosen by hand
PARTS = (
    ("verdict", "Verdict"),
    ("budget", "Budget"),
    ("road", "Road"),
    ("roofline", "Roofline"),
    ("timeline", "One step"),
    ("steps", "Step times"),
    ("kernels", "Kernels"),
    ("fixes", "What helps"),
    ("not-worth-it", "Not worth it"),
    ("missing", "Missing"),
    ("reproduce", "Reproduce"),
)


def to_page(diagnosis: Diagnosis, series: Series | None = None, version: str = "") -> str:
    """The whole file. The same document and series give the same bytes."""
    series = series or Series()
    return whole(
        title=phrases.verdict(diagnosis)[0],
        tone=tone(diagnosis),
        job=phrases.job(diagnosis),
        parts=_parts(diagnosis),
        body=_body(diagnosis, series, version),
        data=_data(diagnosis, series),
    )


def _parts(diagnosis: Diagnosis) -> Sequence[tuple[str, str]]:
    if memory_text.is_alone(diagnosis):
        return MEMORY_PARTS
    beside = MEMORY_BESIDE if diagnosis.memory.kinds else ()
    sizes = (SWEEP_PART,) if diagnosis.sweep is not None else ()
    ranks = (RANKS_PART,) if ranks_together(diagnosis) is not None else ()
    before = [name for name, _ in PARTS].index("fixes")
    return (*PARTS[:before], *ranks, *beside, *sizes, *PARTS[before:])


def whole(
    title: str, tone: str, job: str, parts: Sequence[tuple[str, str]], body: Markup, data: Markup
) -> str:
    """A page around its body: `parts` are its sections, by id and label, `data` what its script reads."""
    style, script = _asset("page.css"), _asset("page.js")
    filled = {
        "policy": Markup(_policy(style, script)),
        "style": Markup(style),
        "script": Markup(script),
        "title": text(f"{title} · findwall"),
        "tone": text(tone),
        "job": text(job),
        "links": Markup("".join(f'<a href="#{name}">{label}</a>' for name, label in parts)),
        "body": body,
        "data": data,
    }
    page = _asset("page.html")
    first, *rest = page.split("{{")
    found = [first]
    for piece in rest:  # one pass: what is filled in is never looked at again
        name, _, after = piece.partition("}}")
        found += [filled[name.strip()], after]
    return "".join(found)


def framed(diagnosis: Diagnosis, short: str, version: str = "") -> str:
    """The page in a frame of its own, for a notebook; below it `short`, which is left where frames are not
    shown. What is in the frame sees nothing of the notebook."""
    page = escape(to_page(diagnosis, None, version), quote=True)
    style = f"width:100%;height:{FRAME_HEIGHT}px;border:1px solid #8884"
    frame = f'<iframe sandbox="allow-scripts" title="findwall" style="{style}" srcdoc="{page}"></iframe>'
    return f"<div>{frame}<details><summary>in short</summary>{short}</details></div>"


def _body(diagnosis: Diagnosis, series: Series, version: str) -> Markup:
    if memory_text.is_alone(diagnosis):
        return joined(memory_sections(diagnosis), reproduce(diagnosis, series, version))
    return joined(
        top(diagnosis),
        budget(diagnosis),
        road(diagnosis),
        roofline(diagnosis),
        timeline(diagnosis, series),
        step_times(diagnosis, series),
        kernels(diagnosis),
        ranks_together(diagnosis),
        memory_beside(diagnosis),
        batch_sizes(diagnosis),
        fixes(diagnosis),
        not_worth_it(diagnosis),
        missing(diagnosis),
        reproduce(diagnosis, series, version),
    )


def _data(diagnosis: Diagnosis, series: Series) -> Markup:
    """The document itself for other programs, the Markdown that the button copies, the timeline's columns."""
    return joined(
        embedded_json("diagnosis", to_json(diagnosis).decode()),
        embedded("markdown", to_markdown(diagnosis)),
        packed(series),
    )


def _policy(style: str, script: str) -> str:
    """Nothing is fetched, and no script or style runs but the two that are written here."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
