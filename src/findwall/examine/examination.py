"""Which examination a run gets: of its device, of its cores, or of its timings alone."""

from __future__ import annotations

import msgspec

from findwall.errors import InputError
from findwall.examine.checks import checked
from findwall.examine.circumstances import Circumstances, circumstances, circumstances_without_trace
from findwall.examine.establish import establish
from findwall.examine.ncu_document import diagnose_kernels
from findwall.examine.ranks import compare_ranks, speaker_of, with_ranks
from findwall.examine.ranks_document import diagnose_summaries
from findwall.examine.traced_document import diagnose_device
from findwall.examine.untraced_document import diagnose_without_device
from findwall.facts.facts import Facts
from findwall.machine.hardware import table_ceilings
from findwall.model.claims import Claim
from findwall.model.diagnosis import Diagnosis
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Rank, Run
from findwall.model.memory_history import MemoryHistory, SnapshotRun
from findwall.model.ncu_kernel import NCU, NcuReport
from findwall.ranks.timed_ranks import TimedRank
from findwall.report.words.documents import worded
from findwall.units import NS_PER_MS, NS_PER_S

LONGEST_STEP_MS = 86_400_000.0  # a day: more is a mistyped unit


class Examined(msgspec.Struct, frozen=True):
    """A Diagnosis, and the facts of the rank that speaks in it; None where no device was traced."""

    diagnosis: Diagnosis
    facts: Facts | None


def examine(
    run: Run, step_ms: float | None = None, ceilings: Ceilings | None = None, what_if: str | None = None
) -> Diagnosis:
    """The Diagnosis of a run. `step_ms`: the true step time, if a person gave one; `what_if`: fixes that one
    asks about."""
    return look_into(run, step_ms, ceilings, what_if).diagnosis


def look_into(
    run: Run, step_ms: float | None = None, ceilings: Ceilings | None = None, what_if: str | None = None
) -> Examined:
    """The same with the facts it rests on: what is drawn beside the document is taken from them."""
    if step_ms is not None and not 0 < step_ms <= LONGEST_STEP_MS:
        hint = "Give --step-ms a positive number of milliseconds."
        raise InputError(f"A step of {step_ms:g} ms is not a step time.", hint)
    ceilings = ceilings or _ceilings(run)
    if run.ncu is not None and run.kind == NCU:
        return _look_into_kernels(run, run.ncu, ceilings, step_ms, what_if)
    if isinstance(run, SnapshotRun):
        return _look_into_memory(run, run.memory, ceilings, step_ms, what_if)
    if run.watched is not None:
        from findwall.examine.watch_document import diagnose_watched  # a trace is read without it

        document = diagnose_watched(run, ceilings)
        return Examined(worded(checked(document, circumstances_without_trace(run, run.first))), None)
    ranks = facts_of(run, step_ms, ceilings)
    if ranks:
        document = checked(diagnose_device(run, ranks, what_if), circumstances(ranks[0]))
        return Examined(worded(document), ranks[0])
    summaries = [rank.summary for rank in run.ranks if rank.summary is not None]
    if summaries and len(summaries) == len(run.ranks):
        document = diagnose_summaries(run, summaries, ceilings)
        return Examined(worded(checked(document, circumstances_without_trace(run, run.first))), None)
    document = diagnose_without_device(run, ceilings, step_ms)
    if what_if is not None:
        document.remarks.insert(0, Claim("what-if/needs-a-device", names={"asked": what_if}))
    return Examined(worded(checked(document, circumstances_without_trace(run, run.first))), None)


def _look_into_kernels(
    run: Run, report: NcuReport, ceilings: Ceilings, step_ms: float | None, what_if: str | None
) -> Examined:
    """Kernels alone have neither a step nor a host to replay."""
    if step_ms is not None:
        hint = "Leave --step-ms out, or give a trace as well: findwall read TRACE --ncu FILE."
        raise InputError(f"{report.path} holds kernels and no step.", hint)
    document = diagnose_kernels(run, report, ceilings)
    if what_if is not None:
        document.remarks.insert(0, Claim("what-if/needs-a-device", names={"asked": what_if}))
    return Examined(worded(checked(document, Circumstances(vendor="nvidia"))), None)


def _look_into_memory(
    run: Run, history: MemoryHistory, ceilings: Ceilings, step_ms: float | None, what_if: str | None
) -> Examined:
    """A snapshot has no times."""
    from findwall.examine.memory_document import diagnose_memory  # a trace is read without it

    if step_ms is not None:
        raise InputError(f"{history.path} is a memory snapshot and has no step.", "Leave --step-ms out.")
    document = diagnose_memory(run, history, ceilings)
    if what_if is not None:
        document.remarks.insert(0, Claim("what-if/needs-a-device", names={"asked": what_if}))
    return Examined(worded(checked(document, Circumstances())), None)


def facts_of(run: Run, step_ms: float | None = None, ceilings: Ceilings | None = None) -> list[Facts]:
    """What is known of each rank whose device was traced, the one that speaks for all first."""
    ceilings = ceilings or _ceilings(run)
    facts = [found for found in (_facts(run, rank, ceilings, step_ms) for rank in run.ranks) if found]
    return _compared(run, facts) if facts else []


def _compared(run: Run, facts: list[Facts]) -> list[Facts]:
    """The ranks, the one that speaks for all first: where some wait for others, the one that waits most."""
    others = [rank.summary for rank in run.ranks if rank.summary is not None]
    findings = compare_ranks(facts, others, _timed(run))
    if findings is None:
        return facts
    most = speaker_of(facts, findings)
    return [with_ranks(facts[most], findings, most), *facts[:most], *facts[most + 1 :]]


def _timed(run: Run) -> list[TimedRank]:
    """All ranks whose steps were timed, traced or not."""
    seen = run.seen
    return [
        TimedRank(rank.number, rank.step_times.seconds, rank in seen)
        for rank in run.ranks
        if rank.step_times is not None
    ]


def _facts(run: Run, rank: Rank, ceilings: Ceilings, step_ms: float | None) -> Facts | None:
    if step_ms is not None:
        seconds, source = step_ms * NS_PER_MS / NS_PER_S, "given"
    elif rank.step_times is not None:
        seconds, source = rank.step_times.mean, "measured"
    else:
        return establish(run, rank, ceilings, None, "trace")
    return establish(run, rank, ceilings, seconds, source)


def _ceilings(run: Run) -> Ceilings:
    """Ceilings that came with the run, else those measured here before, else the table's row."""
    if run.ceilings.known:
        return run.ceilings
    if run.kind in ("run-folder", "watch"):
        from findwall.machine.ceilings import cached_ceilings  # a trace is read without it

        measured = cached_ceilings(run.first.device_name or "")
        if measured is not None:
            return measured
    counted = run.ncu.device if run.ncu is not None and run.kind == NCU else None
    return table_ceilings(run.device_name or counted or "")
