"""A GPU that is in no table: what its ceilings would decide is neither promised nor refused."""

from __future__ import annotations

from functools import cache

import pytest

from findwall.causes.verdict import decide
from findwall.examine.establish import establish
from findwall.facts.facts import Facts
from findwall.fixes import NoUse, Use, all_fixes
from findwall.fixes.prescribe import prescribe
from findwall.fixes.what_if import what_if
from findwall.model.machine import Ceilings
from fixes.recorded import JOBS, TRUTH, job


@cache
def unknown(name: str) -> Facts:
    """The same recording, as if it came from elsewhere."""
    known, true_ms = job(name), TRUTH.get(name, {}).get("step_ms")
    ceilings = Ceilings(device="NVIDIA Nowhere 9000")
    facts = establish(known.run, known.run.ranks[0], ceilings, true_ms and true_ms / 1e3, "given")
    assert facts is not None
    return facts


@pytest.mark.parametrize("name", [*JOBS, "inference", "eager_training"])
def test_a_step_is_told_only_where_ceilings_do_not_decide_it(name: str) -> None:
    for fix in all_fixes():
        here, there = what_if(job(name), fix).step_ms, what_if(unknown(name), fix).step_ms
        if there.mid is not None:
            assert here.mid is not None and 0.85 < there.mid / here.mid < 1.15, fix
        if there.low is not None and here.mid is not None:
            assert there.low <= 1.02 * here.mid, f"{fix}: a bound that a likely step is below"


@pytest.mark.parametrize("name", [*JOBS, "inference", "eager_training"])
def test_nothing_is_refused_that_would_be_advised_with_ceilings(name: str) -> None:
    for name_of_fix, fix in all_fixes().items():
        if isinstance(fix.advise(unknown(name)), NoUse):
            assert not isinstance(fix.advise(job(name)), Use), name_of_fix
    given = {one.fixes[0]: one.step_ms.mid for one in prescribe(job(name), decide(job(name)).cause)[0]}
    for one in prescribe(unknown(name), decide(unknown(name)).cause)[1]:
        step = given.get(one.fixes[0])
        assert step is None or step > 0.9 * job(name).step / 1e6, one
