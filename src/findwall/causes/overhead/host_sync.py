"""The program makes the host wait for the device, and the device then waits for the host.

What it finds:
Idle time in and after calls that wait for the queue to drain: .item(), .cpu(), .numpy(), .tolist(),
nonzero and masked indexing, print(tensor), a Python `if` on a device value, torch.cuda.synchronize(),
and device-to-host copies with nothing beside them.

Why it costs:
While the host waits it queues nothing. When the wait is over the queue is empty, and the device sits
idle until the host has caught up again. One .item() per step is enough to lose the whole run-ahead.

How it is told apart:
By counterfactual: the queue is run again without these calls, and the gaps that disappear are theirs,
even if they look like slow launching. Waiting inside the call itself is no loss while the device works.
Comparisons right before a read, such as torch.isnan(x).any(), run only for it and count with it. A
host-to-device copy that blocks is copy-exposed; a free that waits is allocator.

What helps:
remove-sync: keep metrics on the device and read them every n steps, gather several values in one tensor and
copy once with non_blocking=True, torch.where instead of `if`, foreach=True in clip_grad_norm_, sizes known in
advance instead of nonzero. where-not-mask where `x[mask]` is only summed. foreach-checks where each gradient
is asked for. loop-on-device and group-experts where a loop asks for a size in every round, vectorise-loop
where no round needs another. linalg-route where a routine waits itself. debug-off where anomaly mode was left
on. move-io-off-step
where the values are for a log or a checkpoint.
"""

from __future__ import annotations

from findwall.causes import EVIDENCE_ROWS, Cause, Claim, Evidence, Facts, Told, wait_evidence
from findwall.facts.cause_kernels import kernel_evidence
from findwall.facts.facts import of_class, time_of
from findwall.facts.user_lines import sampled_evidence
from findwall.facts.waits import syncs
from findwall.model.catalogue import MAJORITY_SHARE

NAME = "host-sync"


def shows(facts: Facts) -> list[Evidence]:
    found = wait_evidence(syncs(facts)) + kernel_evidence(facts, NAME)
    if not any(one.line for one in found):
        return [*found[: EVIDENCE_ROWS - 1], *sampled_evidence(facts)[:1], *found[EVIDENCE_ROWS - 1 :]]
    return found


def says(facts: Facts) -> Told:
    calls = syncs(facts)
    atoms = facts.atoms.of(NAME)
    copied = time_of(facts, atoms[of_class(facts, "memcpy")[atoms]])  # the device does not wait then
    if not calls or copied > MAJORITY_SHARE * facts.spent_ms(NAME):
        return Told(Claim("host-sync/copies"), Claim("advise/remove-sync/copies"))
    times = sum(wait.times for wait in calls)
    stops = Claim("host-sync/stops", {"times": times}, parts=[calls[0].claim("host-sync/call")])
    return Told(stops, Claim("advise/linalg-route" if calls[0].in_routine else "advise/remove-sync"))


CAUSE = Cause(NAME, says, shows, kernels=False)
