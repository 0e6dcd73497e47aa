"""Why 16-bit formats are not used."""

from __future__ import annotations

from findwall.facts.rewritten_step import faster_narrow, multiply_wide, why_not_known
from findwall.fixes import CannotTell, NoUse, no_use
from findwall.model.claims import Claim
from findwall.work.work_facts import WorkFacts


def not_narrowed(facts: WorkFacts) -> NoUse | CannotTell | None:
    """What keeps the products from 16 bits, whichever they are."""
    if (why := why_not_known(facts)) is not None:
        return CannotTell(why)
    if not faster_narrow(facts):
        return NoUse(Claim("matmuls/no-faster-narrow", names={"device": facts.ceilings.device}))
    return no_use("autocast/in-place") if len(multiply_wide(facts)) == 0 else None
