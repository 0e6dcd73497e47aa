"""The view for a notebook: a little HTML without scripts or styles of its own, every word of it escaped."""

from __future__ import annotations

from html import escape

from findwall.model.catalogue import ROOFS
from findwall.model.diagnosis import Diagnosis
from findwall.report import fix_phrases, phrases
from findwall.report.printable_names import brief, clean

FIXES_SHOWN = 4
NOTES_SHOWN = 5
COLORS = {"none": "#c90", "roof": "#393", "wall": "#c33"}  # told apart on light and on dark ground


def to_html(diagnosis: Diagnosis) -> str:
    """The verdict first, then what to try, then the budget; the rest is in the text form."""
    title, sentence = phrases.verdict(diagnosis)
    kind = "none" if diagnosis.wall.wall is None else "roof" if diagnosis.wall.cause in ROOFS else "wall"
    fixes = [
        " ".join(item.fixes) + (f", {gain}" if (gain := fix_phrases.gain(item)) else "") + f": {item.how}"
        for item in diagnosis.prescriptions[:FIXES_SHOWN]
    ]
    parts = [
        f'<div style="border-left:4px solid {COLORS[kind]};padding-left:1em">',
        f"<b>{_text(title)}</b><p>{_text(sentence)}</p>",
        _list("what is known", phrases.known(diagnosis)),
        _list("try", fixes),
        f"<p>{_text(phrases.job(diagnosis))}<br>step {_text(phrases.step(diagnosis))}</p>",
        _budget(diagnosis),
        _list("notes", phrases.notes(diagnosis)[:NOTES_SHOWN]),
        "</div>",
    ]
    return "".join(parts)


def _text(text: str) -> str:
    return escape(clean(text))


def _list(title: str, lines: list[str]) -> str:
    items = "".join(f"<li>{_text(brief(line, 300))}</li>" for line in lines)
    return f"<b>{title}</b><ul>{items}</ul>" if items else ""


def _budget(diagnosis: Diagnosis) -> str:
    rows = [
        (
            row.wall,
            row.cause,
            f"{row.time} ms",
            row.share,
            f"{row.recoverable} ms" if row.recoverable_ms else row.recoverable,
        )
        for row in phrases.bars(diagnosis)
    ]
    if not rows:
        return ""
    heads = "".join(f"<th>{head}</th>" for head in ("wall", "cause", "time", "share", "recoverable"))
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{heads}</tr>{body}</table>"
