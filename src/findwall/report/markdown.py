"""The same view as Markdown: short enough for a comment on a pull request."""

from __future__ import annotations

import re

from findwall.model.diagnosis import Diagnosis
from findwall.report import fix_phrases, phrases
from findwall.report.printable_names import brief, clean
from findwall.report.texts import memory_text, sweep_text

MARKS = {"yes": "✔", "no": "✘", "unknown": "?"}
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~!])")


def to_markdown(diagnosis: Diagnosis) -> str:
    """The verdict first, then what carries it."""
    title, sentence = phrases.verdict(diagnosis)
    blocks = [f"### {escape(title)}", f"**{escape(sentence)}**"]
    notes = _list("Notes", phrases.notes(diagnosis)[:5])
    has_verdict = diagnosis.wall.wall is not None
    blocks += [_list("What is known", phrases.known(diagnosis)), "" if has_verdict else notes]
    if diagnosis.sweep is not None:
        blocks += [_list("Batch sizes", diagnosis.sweep.says), sweep_text.to_markdown(diagnosis.sweep)]
    blocks.append(_helps(diagnosis))
    blocks += [_budget(diagnosis), _questions(diagnosis), _facts(diagnosis)]
    blocks.append(_list("What memory holds at its peak", memory_text.kinds(diagnosis.memory)))
    blocks += [_list("Evidence", phrases.evidence(diagnosis)), _refused(diagnosis)]
    following = phrases.next_wall(diagnosis)
    blocks.append(f"Next wall: {escape(following)}" if following else "")
    way = fix_phrases.road(diagnosis)
    blocks += [f"Road: {escape(way)}" if way else "", notes if has_verdict else ""]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """Text that stays text: no markup, no HTML, no mention, no link."""
    text = _SIGNS.sub(r"\\\1", clean(text))
    return text.replace("://", ":\\//").replace("@", "@\u200b")


def _facts(diagnosis: Diagnosis) -> str:
    lines = [escape(phrases.job(diagnosis)), f"{phrases.whole(diagnosis)} {escape(phrases.step(diagnosis))}"]
    lines += [escape(text) for text in (phrases.speed(diagnosis), phrases.phases(diagnosis)) if text]
    mfu = phrases.mfu(diagnosis)
    lines += [f"MFU {escape(mfu)}"] if mfu else []
    return "\n".join(f"- {line}" for line in lines)


def _questions(diagnosis: Diagnosis) -> str:
    return "\n".join(
        f"- {MARKS[question.answer]} {question.id}: {escape(question.sentence)}"
        for question in diagnosis.questions
    )


def _budget(diagnosis: Diagnosis) -> str:
    rows = phrases.bars(diagnosis)
    if not rows:
        return ""
    lines = ["| wall | cause | time | share | recoverable |", "|---|---|--:|--:|--:|"]
    for row in rows:
        recoverable = f"{row.recoverable} ms" if row.recoverable_ms else row.recoverable
        lines.append(
            f"| {escape(row.wall)} | {escape(row.cause)} | {row.time} ms | {row.share} | {recoverable} |"
        )
    return "\n".join(lines)


def _helps(diagnosis: Diagnosis) -> str:
    lines = []
    shown = diagnosis.prescriptions[:4]
    for item in shown:
        gain = fix_phrases.gain(item)
        lines.append(f"{' + '.join(item.fixes)}{f', {gain}' if gain else ''}: {item.how}")
    said = "; ".join(text for text in (fix_phrases.basis(shown), fix_phrases.safety(shown)) if text)
    return _list(fix_phrases.advised(diagnosis), lines) + (f"\n\n({escape(said)})" if said else "")


def _refused(diagnosis: Diagnosis) -> str:
    refused = fix_phrases.refused(diagnosis)[:4]
    return _list("What will not help", [f"{', '.join(item.fixes)}: {item.why}" for item in refused])


def _list(title: str, lines: list[str]) -> str:
    return "\n".join([f"{title}:", "", *(f"- {escape(brief(line, 300))}" for line in lines)]) if lines else ""
