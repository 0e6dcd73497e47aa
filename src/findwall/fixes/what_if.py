"""What a person asks about: `loader-workers=4,pin-memory`."""

from __future__ import annotations

import re
from difflib import get_close_matches

from findwall.errors import InputError
from findwall.facts.facts import Facts
from findwall.facts.gains import is_blind, step_ms
from findwall.fixes import NoUse, Outcome, Use, all_fixes, without_floors
from findwall.fixes.at_best import together_at_best
from findwall.fixes.candidates import in_ms, speedup
from findwall.fixes.predict import mended_by, predict
from findwall.model.claims import Claim, Range
from findwall.model.diagnosis import WhatIf
from findwall.units import ms

_NUMBER = re.compile(r"[1-9][0-9]{0,5}")  # of workers or the like: more digits are none that anybody means


def what_if(facts: Facts, asked: str) -> WhatIf:
    """The step with the fixes made that a person named, as far as they apply here."""
    outcomes = outcomes_of(facts, asked)
    uses = {name: one for name, one in outcomes.items() if isinstance(one, Use)}
    said = [_of_fix(name, one.claim) for name, one in outcomes.items() if not isinstance(one, Use)]
    now = step_ms(facts)
    if not uses:
        nothing = all(isinstance(one, NoUse) for one in outcomes.values())
        same = (Range(now, now, now), Range(1.0, 1.0, 1.0)) if nothing else (Range(), Range())
        return WhatIf(asked, [], *same, claims=said)
    blind = [name for name, one in uses.items() if predict(facts, {name: one}) is None]
    if is_blind(facts, *mended_by(uses)):
        why = Claim("what-if/without-floors", parts=[without_floors(facts)])
        said += [_of_fix(name, why) for name, one in uses.items() if is_blind(facts, *mended_by({name: one}))]
        return WhatIf(asked, list(uses), Range(), Range(), claims=said)
    said += [_of_fix(name, Claim("what-if/bound-only")) for name in blind]
    best = ms(together_at_best(uses, facts))
    found = in_ms(predict(facts, uses), best) or Range(low=best if best < now else None)
    return WhatIf(asked, list(uses), found, speedup(found, now), claims=said)


def _of_fix(name: str, what: Claim) -> Claim:
    return Claim("what-if/of-fix", {"fix": name}, parts=[what])


def outcomes_of(facts: Facts, asked: str) -> dict[str, Outcome]:
    """What each fix that a person named says of this job, with the number given to it."""
    found: dict[str, Outcome] = {}
    for name, number in parse(asked).items():
        fix = all_fixes()[name]
        if number is not None and fix.numbered is not None:
            found[name] = fix.numbered(facts, number)
        else:
            found[name] = fix.advise(facts)
    return found


def parse(asked: str) -> dict[str, int | None]:
    """Fixes by name, with the number given to each."""
    found: dict[str, int | None] = {}
    for part in filter(None, (one.strip() for one in asked.split(","))):
        name, sign, number = (one.strip() for one in part.partition("="))
        fix = all_fixes().get(name)
        if fix is None:
            near = get_close_matches(name, all_fixes(), 1)
            hint = f"Did you mean {near[0]}?" if near else "`findwall explain` lists the fixes."
            raise InputError(f"There is no fix called {name!r}.", hint)
        if sign and (fix.numbered is None or not _NUMBER.fullmatch(number)):
            raise InputError(
                f"{part!r} is not a fix with a number of at least 1.",
                "Only loader-workers takes one, as in loader-workers=4.",
            )
        found[name] = int(number) if sign else None
    if not found:
        raise InputError("No fix is named.", "Name some, as in loader-workers=4,pin-memory.")
    return found
