"""What `try` leaves to a person: what helps, and nobody else can change."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from findwall.model.diagnosis import Prescription
from findwall.report import fix_phrases
from findwall.report.printable_names import brief, clean
from findwall.report.texts.patch_text import WIDTH

MOST_SHOWN = 3
LONGEST_HOW = 260  # characters, as on the screen of a verdict


def to_text(left: Sequence[Prescription], kept: bool = False, looked: bool = True) -> str:
    """Nothing where nothing is left. `kept`: some fixes were proven; `looked`: and the job was seen with
    them, so that these steps are on top of theirs."""
    if not left:
        return ""
    shown = list(left[:MOST_SHOWN])
    on = "" if not kept else ", on top of that" if looked else ", and what it would make of the plain job"
    said = "; ".join(text for text in (fix_phrases.basis(shown), fix_phrases.safety(shown)) if text)
    lines = ["", f"  What only you can change{on}:"]
    for item in shown:
        gain = fix_phrases.gain(item)
        text = f"{clean(item.fixes[0])}{f', {gain}' if gain else ''}: {brief(item.how, LONGEST_HOW)}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    if said:
        lines += textwrap.wrap(f"({said})", WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"
