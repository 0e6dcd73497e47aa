"""Why fixes of the loader and of copies are not made."""

from __future__ import annotations

from findwall.facts.facts import Facts
from findwall.facts.gains import step_ms
from findwall.facts.host_cores import is_unseen
from findwall.facts.memory_copies import uploads
from findwall.facts.step_traits import on_cores
from findwall.fixes import NoUse, no_use, unclear_if, unless
from findwall.model.catalogue import WAITED_FOR_SHARE

COPIES_ON_CORES = unless("copies/on-cores", on_cores, obvious=True)


COPIES_HIDDEN = unless(
    "copies/hidden", lambda facts: facts.spent_ms("copy-exposed") <= WAITED_FOR_SHARE * step_ms(facts)
)


COPIES_UNTOLD = unclear_if("copies/untold", lambda facts: not uploads(facts).told)


LOADER_MISSING = unclear_if("loader/by-hand", lambda facts: facts.by_hand is not None)


LOADER_UNSEEN = unclear_if("loader/unseen", is_unseen)


def loader_waits_little(facts: Facts) -> NoUse | None:
    waited = facts.spent_ms("loader-starved")
    return (
        no_use("loader/waits-little", waits_ms=waited)
        if waited <= WAITED_FOR_SHARE * step_ms(facts)
        else None
    )
