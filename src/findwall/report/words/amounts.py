"""Parts of sentences: how often, how many, where and which."""

from __future__ import annotations

from collections.abc import Iterable

from findwall.model.claims import Claim
from findwall.report.words import Words, spoken

NAMED = 2  # in one sentence: more make it hard to read


def at(claim: Claim, before: str = " at ", after: str = "") -> str:
    """ " at train.py:88"; nothing where no line is known."""
    return f"{before}{claim.places[0]}{after}" if claim.places else ""


def count_of(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _op_at(claim: Claim) -> str:
    return f"{claim.names['op'] or 'a copy'} {claim.names['shape']}".strip() + at(claim)


def op_names(parts: Iterable[Claim], most: int) -> list[str]:
    return list(dict.fromkeys([spoken(part) for part in parts][:most]))


WORDS: dict[str, Words] = {
    "op/name": "{op}",
    "op/at": _op_at,
    "line/of": "{places[0]} ({function})",
    "fix/name": "`{fix}`",
    "optimizer/name": "{optimizer}",
    "calls/of": "{calls:,.0f} {call}",
    "device/cores": "the job runs on the CPU",
    "ceilings/unknown": "how near the ceiling its kernels run is not known: {parts[0]}",
    "graph/replayed-already": "the kernels are already replayed from a graph",
    "compile/second-derivatives": (
        "the job differentiates a gradient (`create_graph=True`), and compiled code does not support that"
    ),
    "matmuls/none": "there is no matmul in this step",
    "matmuls/already-in": "the matmuls already run in {format}",
    "matmuls/no-faster-narrow": "{device} is no faster in 16 bits",
    "matmuls/none-at-arithmetic": "no 16-bit matmul is held up by arithmetic",
    "matmuls/unknown-below-16": "what this {device_word} can do below 16 bits is not known",
    "optimizer/none": "the trace shows no optimizer step",
    "roof/little": "only {roof_share:share} of the step is at the roof",
}
