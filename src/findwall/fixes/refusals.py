"""Why fixes are not made, where several have the same reason."""

from __future__ import annotations

from findwall.facts.collectives import collectives_a_step, forward_passes
from findwall.facts.facts import Facts
from findwall.facts.figures import step_ms
from findwall.facts.host_cores import is_unseen
from findwall.facts.memory_copies import uploads
from findwall.facts.rewritten_step import faster_narrow, multiply_wide, why_not_known
from findwall.facts.step_traits import graph_share, on_cores
from findwall.fixes import CannotTell, NoUse, Refusal, no_use, takes_nothing, unclear_if, unless
from findwall.model.catalogue import MAJORITY_SHARE, WAITED_FOR_SHARE
from findwall.model.claims import Claim

ON_CORES = unless("device/cores", on_cores, obvious=True)
REPLAYED = unless("graph/replayed-already", lambda facts: graph_share(facts) > MAJORITY_SHARE)
NO_COLLECTIVES = unless("communication/none", lambda facts: collectives_a_step(facts) == 0)
NOT_DATA_PARALLEL = unless("data-parallel/none", lambda facts: len(forward_passes(facts)) == 0)
CACHED = unless("allocator/cached", takes_nothing("allocator"))
COPIES_ON_CORES = unless("copies/on-cores", on_cores, obvious=True)
COPIES_HIDDEN = unless(
    "copies/hidden", lambda facts: facts.spent_ms("copy-exposed") <= WAITED_FOR_SHARE * step_ms(facts)
)
COPIES_UNTOLD = unclear_if("copies/untold", lambda facts: not uploads(facts).told)
LOADER_UNSEEN = unclear_if("loader/unseen", is_unseen)


def communication_hidden(*causes: str) -> Refusal:
    return unless("communication/hidden", takes_nothing(*causes))


def loader_waits_little(facts: Facts) -> NoUse | None:
    waited = facts.spent_ms("loader-starved")
    return (
        no_use("loader/waits-little", waits_ms=waited)
        if waited <= WAITED_FOR_SHARE * step_ms(facts)
        else None
    )


def not_narrowed(facts: Facts) -> NoUse | CannotTell | None:
    """What keeps the products from 16 bits, whichever they are."""
    if (why := why_not_known(facts)) is not None:
        return CannotTell(why)
    if not faster_narrow(facts):
        return NoUse(Claim("matmuls/no-faster-narrow", names={"device": facts.ceilings.device}))
    return no_use("autocast/in-place") if len(multiply_wide(facts)) == 0 else None
