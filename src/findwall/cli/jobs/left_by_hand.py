"""What is left to do by hand after `findwall try`: the prescribed fixes that no trial can make."""

from __future__ import annotations

from findwall.cli.jobs.trying import Tried
from findwall.cli.jobs.what_to_try import rivals
from findwall.fixes import all_fixes
from findwall.model.diagnosis import Prescription
from findwall.trial.judge import bare


def left_by_hand(tried: Tried, numerics: bool = True) -> list[Prescription]:
    """Of the last look at the job, in its order, without what the kept stack does already.

    `numerics`: fixes that round differently count.
    """
    known, stack = all_fixes(), tried.found.stack
    last = tried.after or tried.before
    # What the stack moved may be gone, and no look at the job with it says what is left of it. Work that an
    # edit takes out whole is still there, however fast.
    moved = set() if last is tried.after else {cause for name in stack for cause in known[bare(name)].moves}
    return [
        one
        for one in last.prescriptions
        if len(one.fixes) == 1  # what is played together stands here by itself as well
        and known[one.fixes[0]].trial is None
        and not rivals(stack, one.fixes[0])
        and (known[one.fixes[0]].removes or not set(one.moves) <= moved)
        and (numerics or one.safety != "changes-numerics")
    ]
