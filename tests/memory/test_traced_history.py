"""What a trace says of the allocator: phases, kinds and lines by what runs around each event."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import warm
from findwall import api
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.memory_kinds import KINDS
from findwall.memory.traced_history import traced_history
from findwall.model.memory_history import HOST, KnownMemory
from findwall.report.terminal import to_text
from memory_traces import HIDDEN, MIB, PASSING, WEIGHTS, Trace, train

MODEL = sum(WEIGHTS)


def facts_of(trace: Trace, folder: Path, known: KnownMemory | None = None) -> DeviceMemoryFacts:
    history = traced_history(trace.timeline(folder), known)
    assert history is not None
    return device_memory(history)[0]


def at_peak(facts: DeviceMemoryFacts) -> dict[str, int]:
    sizes = np.bincount(facts.kinds[facts.at_peak], facts.walk.lives.asked[facts.at_peak], len(KINDS))
    return {kind: int(size) for kind, size in zip(KINDS, sizes, strict=True) if size}


@pytest.mark.parametrize("thread", [7, 8], ids=["on the job's own thread", "on autograd's"])
def test_phases_are_those_of_the_ops(tmp_path: Path, thread: int) -> None:
    trace = Trace()
    train(trace, backward_on=thread)
    facts = facts_of(trace, tmp_path)
    names = [facts.phases.of(int(start)) for start in facts.phases.start]
    assert names[:6] == ["forward", "backward", "optimizer"] * 2
    assert facts.peak_bytes == trace.peak and facts.walk.off_by == 0
    assert facts.history.device == HOST


def test_kinds_are_told_by_births_and_deaths(tmp_path: Path) -> None:
    trace = Trace()
    train(trace, first_state=True)
    found = at_peak(facts_of(trace, tmp_path))
    hidden = HIDDEN * len(WEIGHTS)
    # The second forward's last layer, or its backward's first gradient: the state is there by then.
    assert found == {
        "optimizer-state": 2 * MODEL,
        "activations": hidden,
        "temporaries": PASSING,
        "gradients": WEIGHTS[-1],
    }


def test_what_was_there_before_is_split_by_whole_copies(tmp_path: Path) -> None:
    """A model and Adam's two moments of it, and some more; only the sum is told."""
    trace = Trace(device=0, before=3 * MODEL + MIB)
    train(trace)
    facts = facts_of(trace, tmp_path)
    found = at_peak(facts)
    assert (found["parameters"], found["optimizer-state"]) == (MODEL, 2 * MODEL)
    assert found["before-recording"] == MIB
    assert facts.peak_bytes == trace.peak and facts.walk.off_by == 0


def test_state_made_in_the_recording_was_not_there_before(tmp_path: Path) -> None:
    trace = Trace(device=0, before=3 * MODEL)
    train(trace, first_state=True)
    found = at_peak(facts_of(trace, tmp_path))
    assert found["parameters"] == MODEL and found["before-recording"] == 2 * MODEL


def test_what_is_freed_and_was_not_made_was_there_before(tmp_path: Path) -> None:
    trace = Trace(device=0, before=MODEL + 5 * MIB)
    trace.was_there("old", 5 * MIB)
    with trace.row("aten::add"):
        trace.free("old")
    train(trace, steps=1)
    facts = facts_of(trace, tmp_path)
    assert facts.walk.off_by == 0 and facts.walk.asked[0] == MODEL


def test_what_the_run_knows_wins_over_guesses(tmp_path: Path) -> None:
    """Addresses of a model and its state, that a CPU's trace alone knows nothing of."""
    trace = Trace()
    train(trace)
    told = KnownMemory(
        np.array([16, 1 << 20], np.uint64),
        np.array([7 * MIB, 14 * MIB]),
        np.array([KINDS.index(kind) for kind in ("parameters", "optimizer-state")], np.uint8),
        np.full(2, HOST, np.int32),
    )
    facts = facts_of(trace, tmp_path, told)
    found = at_peak(facts)
    assert (found["parameters"], found["optimizer-state"]) == (7 * MIB, 14 * MIB)
    assert facts.peak_bytes == trace.peak + 21 * MIB


def test_an_address_is_of_who_held_it_then(tmp_path: Path) -> None:
    trace = Trace()
    with trace.row("aten::empty"):
        trace.make("weight", 3 * MIB)
    address = trace.held["weight"][0]
    train(trace, steps=1)
    told = KnownMemory(
        np.array([address + 64], np.uint64),
        np.ones(1, np.int64),
        np.array([KINDS.index("gradients")], np.uint8),
        np.full(1, HOST, np.int32),
    )
    facts = facts_of(trace, tmp_path, told)
    row = int(np.flatnonzero(facts.walk.lives.address == address)[0])
    assert KINDS[facts.kinds[row]] == "gradients"


def test_lines_are_the_persons_where_stacks_were_recorded_else_ops(tmp_path: Path) -> None:
    for stacks, wanted in ((True, "main"), (False, "aten::linear")):
        trace = Trace()
        train(trace, stacks=stacks)
        facts = facts_of(trace, tmp_path)
        of, frames = facts.lines
        hidden = facts.walk.lives.asked == HIDDEN
        assert {frames[line].name for line in of[hidden]} == {wanted}


def test_calls_of_modules_are_known_by_their_class(tmp_path: Path) -> None:
    trace = Trace()
    train(trace, steps=1, stacks=True)
    calls = facts_of(trace, tmp_path).history.calls
    assert calls is not None and len(calls.way) == len(WEIGHTS)
    assert {calls.names[way] for way in calls.way.tolist()} == {"Block"}


def test_a_host_is_left_out_beside_a_device(tmp_path: Path) -> None:
    trace, host = Trace(device=0, before=MIB), Trace()
    train(trace)
    host.make("pinned", 64 * MIB)
    trace.events += host.events
    timeline = trace.timeline(tmp_path)
    assert timeline.memory is not None and set(timeline.memory.device.tolist()) == {0}
    assert timeline.quality.ignored["i"] == 1


def test_the_document_of_a_trace_has_what_a_snapshots_has(tmp_path: Path) -> None:
    trace = Trace(device=0, before=3 * MODEL)
    train(trace, steps=3)
    found = api.read(trace.write(tmp_path / "trace.json"))
    memory = found.memory
    assert memory.peak_gib is not None and memory.peak_gib * 1024 * MIB == trace.peak
    assert (memory.of, memory.steps) == ("allocated", 3)
    assert sum(row.gib for row in memory.kinds) == pytest.approx(memory.peak_gib)
    assert memory.ladder and memory.batches and memory.fragmentation is None
    assert "what makes it smaller" in to_text(found) and "allocated, in" in to_text(found)


JOB = """
import sys, torch
from torch.profiler import profile, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        net(torch.randn(512, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
recorded.export_chrome_trace(sys.argv[1])
"""


def test_a_real_recording_on_a_cpu(tmp_path: Path) -> None:
    job, path = tmp_path / "train.py", tmp_path / "trace.json"
    job.write_text(JOB)
    subprocess.run(warm.command(str(job), str(path)), check=True, timeout=300, capture_output=True)
    memory = api.read(path).memory
    kinds = {row.kind: row.gib * 1024 * MIB for row in memory.kinds}
    weights = 4 * (64 * 256 + 256 + 256 * 64 + 64)
    assert (memory.of, memory.phase, memory.steps) == ("requested", "backward", 3)
    assert kinds["parameters"] == weights
    assert kinds["optimizer-state"] == pytest.approx(2 * weights, abs=64)
    assert kinds["activations"] >= 4 * 512 * 256
