"""What a job that ran out of memory asked for, what was alive, and why there was no more.

From the exception it ended with, which passes through us in any case: its message has the figures of the
moment it was made, and its traceback still holds what was alive. Nothing is asked of the device but totals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from findwall.agent.allocations.failed_model import failed_model
from findwall.agent.allocations.failure_claim import model_gib
from findwall.agent.allocations.failure_text import FailureText, failure_text
from findwall.agent.allocations.growth_at_failure import AtFailure, growth_until
from findwall.agent.allocations.kept_tensors import Growth, holder
from findwall.agent.allocations.known_addresses import known_addresses
from findwall.agent.allocations.live_tensors import objects_of
from findwall.agent.allocations.memory_totals import Totals
from findwall.agent.allocations.oom_observer import Failed, Failures
from findwall.agent.allocations.state_in_making import full_state
from findwall.agent.allocations.training_pass import is_of_training
from findwall.agent.allocations.worker_errors import is_of_worker, worker_line
from findwall.agent.timing.sampler import is_library, short
from findwall.machine.host_memory import own_limits, resident, unlimited_memory
from findwall.model.answers.memory_answer import (
    CaughtFailures,
    FailedModel,
    FailureCause,
    FailureGrowth,
    MemoryKindRow,
    MemoryPhase,
    OutOfMemory,
)
from findwall.model.catalogue import MENTION_SHARE
from findwall.model.memory_history import HOST
from findwall.units import GIB

# What a process takes of a device for its context and libraries: with less than that nobody else is there.
CONTEXT_BYTES = GIB
ROUNDED_BYTES = 32 << 20  # three figures of a message are each rounded to 10 MiB: less than that is nobody
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
EXPANDABLE = "expandable_segments:true"
MOST_OBJECTS = 1_000_000  # of Python's that are looked through: half a second
MOST_CAUSES = 5  # exceptions that one was raised from


def failed_request(
    error: BaseException | None,
    torch: Any,
    seen: Failures | None,
    totals: Totals | None = None,
    step: int = 0,
) -> OutOfMemory | None:
    """None where the job ended of something else. A device that is not up yet stays so. `step`: the last that
    ended."""
    error = failure_in(error)
    text = failure_text(error) if error is not None else None
    if error is None or text is None or not (text.on_host or torch.cuda.is_initialized()):
        return None
    found = _of_host(text, error, torch) if text.on_host else _of_device(text, error, torch, seen)
    if is_of_worker(error):
        found.line, found.phase, found.of_training = worker_line(error), "unknown", False
        found.held_gib, found.kinds, found.state_gib = None, [], None  # these are another process's
        return found
    found.of_training = is_of_training(error, torch, found.phase)
    found.room_gib = (found.held_gib or 0.0) + _left_gib(found)
    if totals is not None:
        with suppress(Exception):  # the job's own objects may be anything
            _tell_growth(found, error, torch, totals, step)
    return found


def failure_in(error: BaseException | None) -> BaseException | None:
    """The exception that says that memory ended: this one, or one that it was raised from."""
    for _ in range(MOST_CAUSES):
        if error is None or failure_text(error) is not None:
            return error
        error = error.__cause__
    return None


def trained_model(error: BaseException | None, torch: Any, found: OutOfMemory) -> FailedModel | None:
    """What the job trained when this request failed."""
    device = HOST if found.device is None else found.device
    with suppress(Exception):  # the job's own objects may be anything
        error = failure_in(error)
        optimizers = objects_of(torch.optim.Optimizer, among=MOST_OBJECTS)
        return None if error is None else failed_model(error, torch, device, optimizers)
    return None


def _of_host(text: FailureText, error: BaseException, torch: Any) -> OutOfMemory:
    """The system refuses a request for less than it has only where this process may not have more."""
    held, left, limit = resident(), unlimited_memory(), own_limits()[0]
    cause: FailureCause = "unknown"
    if text.asked is not None and left is not None:
        cause = "size" if text.asked > left else "limit" if limit is not None else "unknown"
    phase = _phase(error)
    return OutOfMemory(
        _gib(text.asked),
        _gib(left),
        None,
        None,
        cause,
        phase,
        _line(error),
        on_host=True,
        total_gib=_gib(None if held is None or left is None else held.allocated + left),
        limit_gib=_gib(limit),
        held_gib=_gib(None if held is None else held.allocated),
        kinds=_kinds(torch, HOST, None if held is None else held.allocated),
        state_gib=_gib(full_state(torch, HOST, MOST_OBJECTS) if phase == "optimizer" else None),
    )


def _of_device(text: FailureText, error: BaseException, torch: Any, seen: Failures | None) -> OutOfMemory:
    device = text.device if text.device is not None else int(torch.cuda.current_device())
    last = _told_of(text, device, seen)
    stats = (last.stats if last is not None else None) or torch.cuda.memory_stats(device)
    free, total = torch.cuda.mem_get_info(device)
    free = last.free if last is not None else _or(text.free, free)
    total = _or(text.total, total)
    allocated = _or(text.allocated, stats.get("allocated_bytes.all.current", 0))
    reserved = stats.get("reserved_bytes.all.current", 0)
    cached = _or(text.cached, max(reserved - allocated, 0))
    others = total - free - _or(text.own, allocated + cached + CONTEXT_BYTES)
    others = others if others > ROUNDED_BYTES else 0
    asked = last.asked if last is not None else text.asked
    allowed = text.allowed if last is None or last.limit >= total else last.limit
    phase = _phase(error)
    return OutOfMemory(
        _gib(asked),
        _gib(free),
        _gib(cached),
        None,
        _cause(asked, free, cached, others, allowed, allocated + cached),
        phase,
        _line(error) or (last.place if last is not None else None),
        device=device,
        total_gib=_gib(total),
        limit_gib=_gib(allowed if allowed is not None and allowed < total else None),
        others_gib=_gib(others),
        held_gib=_gib(allocated),
        kinds=_kinds(torch, device, allocated),
        is_expandable=any(EXPANDABLE in os.environ.get(name, "").lower() for name in SETTINGS),
        state_gib=_gib(full_state(torch, device, MOST_OBJECTS) if phase == "optimizer" else None),
    )


def _told_of(text: FailureText, device: int, seen: Failures | None) -> Failed | None:
    """What the observer saw of this very request: others may have failed before, and a driver's own failure
    it never sees."""
    last = None if seen is None else seen.last
    if last is None or last.device != device or text.asked is None:
        return None
    return last if abs(last.asked - text.asked) <= MENTION_SHARE * last.asked else None  # it is rounded


def _cause(
    asked: int | None, free: int, cached: int, others: int, allowed: int | None, reserved: int
) -> FailureCause:
    """Before it gives up torch hands back what of its cache it can: the rest lies in pieces, between blocks
    in use, and serves no request together with what is free elsewhere."""
    if asked is None:
        return "unknown"
    if asked <= cached:
        return "fragmentation"
    if asked > free:
        return "others" if asked <= free + others else "size"
    most = None if allowed is None else (1 - MENTION_SHARE) * allowed  # figures in a message are rounded
    return "limit" if most is not None and reserved + asked > most else "unknown"


def _tell_growth(found: OutOfMemory, error: BaseException, torch: Any, totals: Totals, step: int) -> None:
    """Where the job kept something of every step, that is the cause: without it the request had fitted, also
    into what a limit allows."""
    device = HOST if found.device is None else found.device
    looks = totals.looks(None if found.on_host else device)
    # On the host what was there before the first steps is mostly no tensor: Python, and torch itself.
    before = looks[0][1] if found.on_host and looks else 0
    asked = None if found.asked_gib is None else found.asked_gib * GIB
    model = max(model_gib(found) * GIB, before)
    failure = AtFailure(step, (found.held_gib or 0.0) * GIB, model, asked, _left_gib(found) * GIB)
    seen = growth_until(looks, failure)
    if seen is None:
        return
    found.growth, found.cause = FailureGrowth(seen.bytes_per_step / GIB, seen.first, seen.last), "growth"
    nodes = (totals.nodes_per_step(torch, step) or 0.0) * (step - seen.first)
    kept = holder(error, torch, device, Growth(seen.grown, nodes))
    if kept is not None:
        found.growth.holder, found.growth.function = kept.name, kept.function
        found.growth.tensors, found.growth.graphs = kept.tensors, kept.graphs


def _left_gib(found: OutOfMemory) -> float:
    """What this process could still have got, a limit of its own counted."""
    cached = found.free_gib or 0.0
    left = (found.device_free_gib or 0.0) + cached
    if found.limit_gib is None:
        return left
    if found.on_host:
        return min(left, (own_limits()[1] or 0) / GIB)
    return min(left, found.limit_gib - (found.held_gib or 0.0))


def _or(told: int | None, otherwise: int) -> int:
    return otherwise if told is None else told


def _gib(count: int | None) -> float | None:
    return None if count is None else count / GIB


def _kinds(torch: Any, device: int, held: int | None) -> list[MemoryKindRow]:
    """What the job knows to be its model; the rest is everything else."""
    if held is None:
        return []
    rows: list[MemoryKindRow] = []
    with suppress(Exception):  # the job's own objects may be anything
        known = known_addresses(torch, MOST_OBJECTS)
        kinds = (known.parameters, known.gradients, known.optimizer_state)
        sizes = [[size for where, _, size in mine if where == device] for mine in kinds]
        rows += [MemoryKindRow("parameters", sum(sizes[0]) / GIB, len(sizes[0]))]
        rows += [MemoryKindRow("gradients", sum(sizes[1]) / GIB, len(sizes[1]))]
        rows += [MemoryKindRow("optimizer-state", sum(sizes[2]) / GIB, len(sizes[2]))]
    rest = held / GIB - sum(row.gib for row in rows)
    return [*(row for row in rows if row.count), MemoryKindRow("unknown", max(rest, 0.0), 0)]


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """File, line and function, the outermost first."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        yield code.co_filename, trace.tb_lineno, code.co_name
        trace = trace.tb_next


def _line(error: BaseException) -> str | None:
    """The innermost line of the person's own code."""
    own = [f"{short(file)}:{line}" for file, line, _ in _frames(error) if not is_library(file)]
    return own[-1] if own else None


def _phase(error: BaseException) -> MemoryPhase:
    """By the innermost frame of torch that says it."""
    found: MemoryPhase = "unknown"
    for file, _, function in _frames(error):
        path = file.replace(os.sep, "/")
        if "torch/optim/" in path and function != "zero_grad":
            found = "optimizer"
        elif path.endswith(("torch/_tensor.py", "torch/autograd/__init__.py")) and function == "backward":
            found = "backward"
        elif path.endswith("torch/nn/modules/module.py"):
            found = "forward"
    return found


def caught_failures(
    torch: Any, device: int | None, seen: Failures | None, ended_by_one: bool
) -> CaughtFailures | None:
    """Requests that failed and that the job lived on after; on a CPU nobody counts them."""
    if device is None:
        return None
    count = int(torch.cuda.memory_stats(device).get("num_ooms", 0))
    count = max(count, seen.count if seen is not None else 0) - int(ended_by_one)
    if count <= 0:
        return None
    largest = seen.largest(ended_by_one) if seen is not None else None
    if largest is None:
        return CaughtFailures(count)
    return CaughtFailures(count, largest.asked / GIB, largest.place)
