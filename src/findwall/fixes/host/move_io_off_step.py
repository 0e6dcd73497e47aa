"""Write logs and checkpoints beside the step, or less often.

What it does:
While Python serialises, formats or writes, the host issues no kernel and the device waits. Copy
what is to be saved (`non_blocking=True`, pinned memory) and let a thread write it
(`torch.distributed.checkpoint.async_save`, a queue for the logger), and do it every n steps.

When it does not help:
The host has no long stretch without ops. Work that the step needs (sampling, environment steps)
cannot be moved away, only made faster (vectorise-loop) or put one step ahead. A loop of Python holds the
interpreter in any thread: it needs a process of its own.

Risk:
A crash loses what was not yet written. The copy must be complete before parameters change.
"""

from __future__ import annotations

from findwall.facts.host_loops import mostly_over_parts
from findwall.facts.memory_copies import BULK_BYTES, downloaded, downloads
from findwall.facts.user_lines import loops_in_python, sampled, saving_ms, seen_at_ops
from findwall.facts.waits import is_in_host_ops
from findwall.fixes import Claim, Facts, Fix, Outcome, Use, ideal, lines, no_use, step_ms, surely, unless
from findwall.model.catalogue import MAJORITY_SHARE, MENTION_SHARE
from findwall.replay.change import Change, Drop
from findwall.step.timed_steps import RARE, untraced_evaluations

MOVES = ("host-work", "host-sync", RARE)


def use(facts: Facts) -> Outcome:
    spent = facts.spent_ms("host-work")
    copied = downloads(facts).nbytes
    # A copy that takes longer than what is done with it is no part of it: remove-sync moves that.
    bulk = copied > BULK_BYTES and spent > facts.spent_ms("host-sync")
    at_ops = seen_at_ops(facts, MAJORITY_SHARE * spent / step_ms(facts)) or is_in_host_ops(facts)
    if not bulk and at_ops:
        return no_use("move-io-off-step/at-ops")
    line = sampled(facts, between_ops=True)
    saved = saving_ms(facts)
    # What Python does around the making of batches is mostly of it, too, and so are the lines that were seen.
    batches = facts.by_hand is not None and spent < facts.spent_ms("loader-starved")
    if batches and not bulk and saved <= MENTION_SHARE * step_ms(facts):
        return no_use("move-io-off-step/batches")
    figures = {
        "waits_ms": spent,
        "saving_ms": saved if saved > MENTION_SHARE * step_ms(facts) else None,
        "copied_bytes": copied if bulk else None,
    }
    evaluates = untraced_evaluations(facts.rank, facts.timeline, facts.queue)
    places = lines(line.place if line is not None else None)
    causes = tuple(
        cause for cause in MOVES if (bulk or cause != "host-sync") and not (cause == RARE and evaluates)
    )
    # The work is done elsewhere; what is copied out for it goes beside the step.
    copies = downloaded(facts) if bulk else facts.queue.row[:0]
    best = ideal(facts, *causes) + Change((Drop(copies),))
    if loops_in_python(facts):  # beside which no other thread issues kernels: nobody can tell what is left
        if not bulk and mostly_over_parts(facts):
            return no_use("move-io-off-step/launching-loop")
        claim = Claim("move-io-off-step/another-process", figures, places=places)
        return Use(claim, best, causes, after_others=True)
    return surely(Claim("move-io-off-step/thread", figures, places=places), best, causes)


FIX = Fix(
    MOVES,
    "needs-review",
    use,
    (
        unless(
            "move-io-off-step/none",
            lambda facts: facts.spent_ms("host-work") <= MENTION_SHARE * step_ms(facts),
        ),
    ),
)
