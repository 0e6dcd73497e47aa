"""Why fixes of communication are not made."""

from __future__ import annotations

from findwall.facts.collectives import collectives_a_step, forward_passes
from findwall.fixes import Refusal, takes_nothing, unless

NO_COLLECTIVES = unless("communication/none", lambda facts: collectives_a_step(facts) == 0)


NOT_DATA_PARALLEL = unless("data-parallel/none", lambda facts: len(forward_passes(facts)) == 0)


def communication_hidden(*causes: str) -> Refusal:
    return unless("communication/hidden", takes_nothing(*causes))
