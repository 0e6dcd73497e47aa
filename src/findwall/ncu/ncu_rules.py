"""What the details page says only in the sentences of its rules: sectors, conflicts, the tensor pipe, stalls.

Counts are taken from the sentence and shares worked out from them. A sentence that reads otherwise than known
says nothing.
"""

from __future__ import annotations

import re

from findwall.ncu.ncu_metrics import Figures

_COUNT = r"(\d[\d,]{0,24})"
_PERCENT = r"(\d{1,3}(?:\.\d+)?)%"
EXCESS = re.compile(rf"total of {_COUNT} excessive sectors \(\d+% of the total {_COUNT} sectors\)")
CONFLICTS = re.compile(
    rf"results in {_COUNT} bank conflicts,\s+which represent [\d.]+% of the overall {_COUNT} wavefronts "
    r"for shared (load|store)s"
)
PIPE = re.compile(r"(?:^|\. )(\w[\w ()/]*?) is the highest-utilized pipeline \(" + _PERCENT + r"\)")
DOMINATED = re.compile(r"dominated by its (Tensor[^.]*?) sub-pipeline")
STALLED = re.compile(r"spends [\d.,]+ cycles being stalled ([^.]*)\.")
STALL_SHARE = re.compile(rf"represents about {_PERCENT} of the total")
# A part of the sentence that only one stall has, by the name of its metric.
STALL_WORDS = {
    "sibling warps at a CTA barrier": "barrier",
    "scoreboard dependency on a L1TEX": "long_scoreboard",
    "scoreboard dependency on an MIO": "short_scoreboard",
    "(LG) memory operations to be not full": "lg_throttle",
    "MIO (memory input/output) instruction queue": "mio_throttle",
    "texture operations to be not full": "tex_throttle",
    "execution pipe to be available": "math_pipe_throttle",
    "fixed latency execution dependency": "wait",
    "immediate constant cache": "imc_miss",
    "memory instructions to complete": "drain",
    "instruction cache miss": "no_instruction",
    "branch target to be computed": "branch_resolving",
    "memory barrier": "membar",
    "warpgroup": "gmma",
}


def add_rule(figures: Figures, sentence: str) -> None:
    """Take from one rule's sentence what it counts."""
    if found := EXCESS.search(sentence):
        figures.values["excess_sectors"] = _count(found[1])
        figures.values["sectors"] = _count(found[2])
    if found := CONFLICTS.search(sentence):
        figures.values[f"{found[3]}_conflicts"] = _count(found[1])
        figures.values[f"{found[3]}_wavefronts"] = _count(found[2])
    if found := PIPE.search(sentence):
        inside = DOMINATED.search(sentence)
        pipe = inside[1] if found[1] == "Shared" and inside else found[1]
        share = float(found[2]) / 100.0
        if pipe.startswith("Tensor") and share <= 1.0:
            figures.tensor.append(share)
    if found := STALLED.search(sentence):
        reason = next((name for words, name in STALL_WORDS.items() if words in found[1]), None)
        share_of = STALL_SHARE.search(sentence)
        if reason is not None and share_of is not None:
            figures.values["stall_share"] = float(share_of[1]) / 100.0
            figures.stalls[reason] = max(figures.stalls.values(), default=0.0) + 1.0


def _count(text: str) -> float:
    return float(text.replace(",", ""))
