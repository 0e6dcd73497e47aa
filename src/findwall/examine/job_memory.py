"""What a job that findwall ran in says of its memory, beside what its trace says: the recorded steps, its
totals over the run, and the requests that failed.
"""

from __future__ import annotations

from msgspec.structs import replace

from findwall.agent.allocations.failure_claim import caught_claim, failure_claim
from findwall.examine.failed_memory import looked_into, told_of
from findwall.examine.memory_document import of_trace, run_memory
from findwall.examine.memory_rows import of_snapshot
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.steady_growth import SteadyGrowth, steady_growth
from findwall.model.answers.memory_answer import Memory, MemoryGrowth, OutOfMemory
from findwall.model.claims import Claim, Figure, lines
from findwall.model.measured_run import Rank, Run
from findwall.units import GIB, SECONDS_PER_HOUR


def with_job(run: Run, speaks: Rank) -> tuple[Memory, list[Claim]]:
    """The memory of the document, and what is to be remarked on it. `speaks`: the rank whose trace counts."""
    memory, remarks = run_memory(run, speaks)
    oom = _failed_request(run)
    caught = next((rank.caught for rank in run.ranks if rank.caught is not None), None)
    # A recording that holds a failure the job lived on after says more of it than nothing.
    memory = replace(memory, oom=oom or memory.oom, caught=caught)
    if memory.peak_gib is None:
        memory = _resident(run, memory)
    growing = next(((rank, found) for rank in run.ranks if (found := _growth(rank)) is not None), None)
    if growing is not None:
        memory, claim = _fills_up(*growing, memory)
        remarks = [claim, *(one for one in remarks if one.id != "memory/grows")]
    if caught is not None:
        remarks.append(caught_claim(caught))
    return memory, [*([failure_claim(oom), *told_of(oom)] if oom is not None else []), *remarks]


def failed(run: Run) -> OutOfMemory | None:
    """The request that the job ended with, of whichever rank."""
    return next((rank.oom for rank in run.ranks if rank.oom is not None), None)


def _failed_request(run: Run) -> OutOfMemory | None:
    """The same with the lines that held most, and what would have fitted."""
    rank = next((rank for rank in run.ranks if rank.oom is not None), None)
    if rank is None:
        return None
    history = of_snapshot(rank) or of_trace(rank)
    devices = [] if history is None else device_memory(history)
    return looked_into(rank, next(iter(devices), None))


def recorded_steps(run: Run) -> DeviceMemoryFacts | None:
    """The device whose steps were recorded; None where none was, or no step that trains."""
    history = of_snapshot(run.first) or of_trace(run.first)
    devices = device_memory(history) if history is not None else []
    return devices[0] if devices and devices[0].trains else None


def _resident(run: Run, memory: Memory) -> Memory:
    """On a CPU: what was resident at the most, and what there is."""
    peaks = [one for rank in run.ranks if rank.device_kind == "cpu" and (one := rank.totals) is not None]
    most = max(peaks, key=lambda one: one.peak or 0, default=None)
    if most is None or not most.peak:
        return memory
    total = most.limit / GIB if most.limit else None
    return replace(memory, peak_gib=most.peak / GIB, total_gib=total, of="resident")


def _growth(rank: Rank) -> SteadyGrowth | None:
    return None if rank.totals is None else steady_growth(rank.totals, rank.first_timed)


def _fills_up(rank: Rank, found: SteadyGrowth, memory: Memory) -> tuple[Memory, Claim]:
    """The whole run's growth, with the line that the recorded steps name for it."""
    line = next((one.line for one in memory.growth if one.line is not None), None)
    kind = memory.growth[0].kind if memory.growth else "unknown"
    row = MemoryGrowth(
        line, found.bytes_per_step / GIB, found.steps, kind, found.full_at_step, found.full_in_s
    )
    figures: dict[str, Figure] = {
        "grown_gib": row.gib_per_step,
        "steps": row.steps,
        "full_step": row.full_at_step,
        "full_h": None if row.full_in_s is None else row.full_in_s / SECONDS_PER_HOUR,
        "recorded": line is not None or rank.device_kind == "cpu",
    }
    claim = Claim("memory/fills-up", figures, places=lines(line))
    return replace(memory, growth=[row, *memory.growth]), claim
