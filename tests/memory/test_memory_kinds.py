"""Every byte has one kind, by when it is born and when it dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import drawn
from findwall.fixes import memory_edits
from findwall.memory.device_memory import DeviceMemoryFacts, device_memory
from findwall.memory.memory_ladder import predicted
from findwall.memory.memory_phases import PHASES
from findwall.memory.snapshots.plain_pickle import PlainPickle
from findwall.memory.snapshots.snapshot_shape import history
from findwall.model.memory_history import KINDS, KnownMemory
from memory_samples import (
    BACKWARD,
    BATCH,
    FORWARD,
    HIDDEN,
    LAYERS,
    LOGITS,
    LOSS,
    MAIN,
    MIB,
    PASSING,
    STEP,
    TOKENS,
    WEIGHT,
    ZERO,
    Recorder,
    Stack,
    build,
    cpp_pickle,
    decoded,
    train_step,
    trained,
)

WEIGHTS = sum(WEIGHT + layer * 4096 for layer in range(LAYERS))


def facts_of(job: Recorder) -> DeviceMemoryFacts:
    return device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))[0]


def at(facts: DeviceMemoryFacts, event: int) -> dict[str, int]:
    alive = facts.walk.lives.alive_at(event)
    sizes = np.bincount(facts.kinds[alive], facts.walk.lives.asked[alive], len(KINDS))
    return {name: int(size) for name, size in zip(KINDS, sizes, strict=True) if size}


def stretches(facts: DeviceMemoryFacts) -> list[str]:
    return [PHASES[phase] for phase in facts.phases.phase]


def last_of(facts: DeviceMemoryFacts, phase: str, number: int = -1) -> int:
    """The last event of a stretch."""
    found = [place for place, name in enumerate(stretches(facts)) if name == phase]
    return facts.phases.end(found[number]) - 1


def test_a_step_of_a_job_that_ran_before() -> None:
    facts = facts_of(trained(steps=2))
    assert stretches(facts) == [
        "set-up",
        "forward",
        "backward",
        "optimizer",
        "forward",
        "backward",
        "optimizer",
    ]
    assert facts.peak_bytes == trained(steps=2).peak
    before_backward = at(facts, last_of(facts, "forward"))
    assert before_backward == {
        "parameters": WEIGHTS,
        "optimizer-state": 2 * WEIGHTS,
        "activations": 2 * LAYERS * HIDDEN,
        "inputs": TOKENS,
        "kept": LOGITS,
    }
    after_backward = at(facts, last_of(facts, "backward"))
    assert after_backward["gradients"] == WEIGHTS and "activations" not in after_backward


def test_a_job_recorded_from_its_first_line() -> None:
    """Parameters are made before the first forward, the state in the first step."""
    facts = facts_of(trained(steps=3, before=False, new_state=lambda step: step == 0))
    end = at(facts, last_of(facts, "optimizer"))
    assert end["parameters"] == WEIGHTS and end["optimizer-state"] == 2 * WEIGHTS
    assert end["gradients"] == WEIGHTS and "before-recording" not in end


def test_temporaries_are_of_their_phase() -> None:
    facts = facts_of(trained())
    passing = facts.kinds == KINDS.index("temporaries")
    counts = np.bincount(facts.born_in[passing], minlength=len(PHASES))
    assert {name: int(count) for name, count in zip(PHASES, counts, strict=True) if count} == {
        "forward": LAYERS,
        "backward": LAYERS,
        "optimizer": LAYERS,
    }


def test_gradients_of_the_step_before_are_gradients() -> None:
    """They are there when the recording begins, and zero_grad() frees them."""
    job = Recorder()
    build(job)
    train_step(job)
    with job.recording():
        train_step(job)
    facts = facts_of(job)
    assert at(facts, -1)["gradients"] == WEIGHTS and at(facts, -1)["parameters"] == WEIGHTS


def test_a_ring_that_begins_within_backward_tells_no_parameters() -> None:
    """Copies of the few gradients that were seen are no model, and there is no forward to make larger."""
    job = trained(steps=1, new_state=True)
    seen = [place for place, one in enumerate(job.events) if one["size"] == WEIGHT + 4096]
    del job.events[: seen[0]]  # the last but one gradient comes now
    facts = facts_of(job)
    found = at(facts, facts.peak)
    assert stretches(facts)[0] == "backward" and facts.walk.off_by == 0
    assert "parameters" not in found and found["gradients"] == 2 * WEIGHT + 4096
    rungs = {one.fix for one in predicted(facts, memory_edits())}
    assert not facts.trains and facts_of(trained()).trains
    assert not {"sgd", "8-bit-optimizer", "zero-1"} & rungs


def test_no_kind_without_stacks() -> None:
    job = trained()
    for event in job.events:
        event["frames"] = []
    facts = facts_of(job)
    assert not facts.phases.is_known
    assert at(facts, facts.peak).keys() == {"unknown", "before-recording"}


def test_forward_alone_keeps_what_was_there_before_apart() -> None:
    job = Recorder()
    build(job, state=False)
    with job.recording():
        for layer in range(LAYERS):
            job.alloc(f"hidden{layer}", HIDDEN)
            job.alloc("passing", PASSING)
            job.free("passing", FORWARD)
    facts = facts_of(job)
    assert at(facts, facts.walk.peak)["activations"] == LAYERS * HIDDEN
    assert at(facts, facts.walk.peak)["before-recording"] == WEIGHTS


WORKSPACE = 8_519_680
CUBLAS: Stack = ("at::cuda::getNewWorkspace()", "at::_ops::mm::call(at::Tensor const&)")


@pytest.mark.parametrize(
    ("stack", "size"), [((*CUBLAS, *FORWARD), 3 * MIB), (FORWARD, WORKSPACE), (BACKWARD, WORKSPACE)]
)
def test_a_workspace_is_taken_once_and_stays(stack: Stack, size: int) -> None:
    job = Recorder()
    build(job)
    with job.recording():
        job.alloc("first", HIDDEN)
        job.alloc("second", HIDDEN)
        if stack:
            job.alloc("workspace", size, stack)
        job.alloc("passing", PASSING, BACKWARD)
        if not stack:
            job.alloc("workspace", size, stack)
        job.free("passing", BACKWARD)
        job.free("second", BACKWARD)
        job.free("first", BACKWARD)
        job.alloc("passing", PASSING, STEP)
        job.free("passing", STEP)
    assert at(facts_of(job), len(job.events) - 1)["workspace"] == size


@pytest.mark.parametrize("stack", [(*CUBLAS, "Engine::thread_main()"), BACKWARD])
@pytest.mark.parametrize("size", [32 * MIB, WORKSPACE])
def test_a_workspace_of_the_first_backward_hides_no_parameters(stack: Stack, size: int) -> None:
    """It is born in backward and stays, as a gradient may; no weight is as large."""
    job = Recorder()
    with job.recording():
        build(job, state=False)
        for step in range(3):
            job.alloc("hidden", HIDDEN)
            if step == 0:
                job.alloc("workspace", size, stack)
            for layer in reversed(range(LAYERS)):
                job.alloc(f"grad{layer}", WEIGHT + layer * 4096, BACKWARD)
            job.free("hidden", BACKWARD)
            for layer in range(LAYERS):
                job.free(f"grad{layer}", ZERO)
    facts = facts_of(job)
    assert at(facts, last_of(facts, "backward")) == {
        "parameters": WEIGHTS,
        "gradients": WEIGHTS,
        "workspace": size,
    }


def test_a_workspace_as_large_as_a_weight_is_none_of_the_weights() -> None:
    """Taken in the first forward or before it, where C++ says who takes it."""
    job = Recorder()
    with job.recording():
        build(job, state=False)
        job.alloc("workspace", WEIGHT, (*CUBLAS, *FORWARD))
        for _ in range(2):
            train_step(job)
    end = at(facts_of(job), len(job.events) - 1)
    assert end["workspace"] == WEIGHT and end["parameters"] == WEIGHTS


def test_a_batch_as_large_as_a_weight_is_no_parameter() -> None:
    """A model is made before its batches, wherever the allocator puts them."""
    job = Recorder()
    with job.recording():
        job.alloc("early", WEIGHT)
        build(job, state=False)
        job.free("early")
        job.alloc("batch", WEIGHT, BATCH)
        for _ in range(2):
            train_step(job)
        job.free("batch", BATCH)
    assert at(facts_of(job), len(job.events) - 1)["parameters"] == WEIGHTS


def test_a_size_alone_is_no_workspace() -> None:
    """32 MiB that backward frees is an activation like any other."""
    job = Recorder()
    build(job)
    with job.recording():
        job.alloc("first", 32 * MIB)
        job.alloc("second", HIDDEN)
        job.alloc("passing", PASSING, BACKWARD)
        job.free("first", BACKWARD)
        job.free("second", BACKWARD)
        job.free("passing", BACKWARD)
    facts = facts_of(job)
    assert at(facts, facts.peak)["activations"] == 32 * MIB + HIDDEN


def test_recomputation_in_backward_is_part_of_backward() -> None:
    """Autograd's thread calls Python back: no script is at the bottom of that stack."""
    job = Recorder()
    build(job)
    again: Stack = ("model.py:10:forward", "/site-packages/torch/utils/checkpoint.py:300:backward")
    with job.recording():
        job.alloc("output", HIDDEN)
        job.alloc("logits", LOGITS, LOSS)
        job.alloc("passing", PASSING, BACKWARD)
        job.alloc("again", HIDDEN, again)
        job.free("again", BACKWARD)
        job.free("output", BACKWARD)
        job.free("passing", BACKWARD)
        job.alloc("x", PASSING, STEP)
        job.free("x", STEP)
    facts = facts_of(job)
    assert stretches(facts)[-3:] == ["forward", "backward", "optimizer"]
    assert at(facts, facts.peak)["temporaries"] == HIDDEN + PASSING


def test_the_next_batch_is_no_state() -> None:
    """An optimizer of one's own, that torch does not know: what follows backward is told by its sizes."""
    job = Recorder()
    build(job)
    own: Stack = ("mine.py:9:update", MAIN)
    with job.recording():
        for step in range(2):
            job.alloc(f"tokens{step}", TOKENS, BATCH)
            if step:
                job.free("tokens0", BATCH)
            job.alloc("hidden", HIDDEN)
            job.alloc("passing", PASSING, BACKWARD)
            if step:
                job.free("grad", BACKWARD)
            job.alloc("grad", WEIGHT, BACKWARD)
            job.free("hidden", BACKWARD)
            job.free("passing", BACKWARD)
            if not step:
                job.alloc("momentum", WEIGHT, own)
            job.alloc("passing", PASSING, own)
            job.free("passing", own)
    facts = facts_of(job)
    end = at(facts, len(job.events) - 1)
    assert end["optimizer-state"] >= WEIGHT and end["inputs"] == TOKENS


Action = tuple[str, int, int]


@drawn(60)
@given(
    st.lists(st.tuples(st.sampled_from(("alloc", "free", "late")), st.integers(0, 9), st.integers(1, 5000))),
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_every_walk_ends_where_the_segments_do(actions: list[Action], start: int, ring: int | None) -> None:
    """Whatever was allocated and freed, wherever the recording began and whatever the ring lost."""
    job = Recorder(max_entries=ring)
    for place, (action, name, size) in enumerate(actions):
        job.is_recording = place >= start
        if action == "alloc" and str(name) not in job.held:
            job.alloc(str(name), size, (FORWARD, BACKWARD, STEP)[size % 3])
        elif action != "alloc" and str(name) in job.held:
            job.free(str(name), LOSS, done=action == "free")
    found = device_memory(history("x", PlainPickle(cpp_pickle(job.snapshot()))))
    if not found:
        assert not job.blocks
        return
    facts = found[0]
    walk = facts.walk
    assert walk.off_by == 0 and walk.unpaired == 0
    assert len(facts.kinds) == len(walk.lives)
    if len(job.events):
        assert int(walk.held[-1]) == int(facts.history.segments.active.sum())
        assert int(walk.reserved[-1]) == int(facts.history.segments.total.sum())
        assert (walk.asked >= 0).all() and (walk.held <= walk.reserved).all()
        assert sum(at(facts, facts.peak).values()) == facts.peak_bytes


SNAPSHOTS = Path(__file__).resolve().parents[3] / "shared" / "snapshots"
MEASURED: dict[str, tuple[float, str, dict[str, float], dict[str, float], Any]] = {
    "medium_1024_training": (
        23085.75,
        "backward",
        {
            "activations": 16752.7,
            "optimizer-state": 3228.6,
            "parameters": 1614.3,
            "temporaries": 1304.0,
            "gradients": 91.1,
            "kept": 78.1,
            "workspace": 16.25,
        },
        {"nn_utils.py:6": 6144.0, "model.py:39": 3236.1, "model.py:434": 3128.0},
        "sdpa",
    ),
    "medium_128_training": (
        6688.44,
        "optimizer",
        {
            "optimizer-state": 3306.8,
            "gradients": 1614.3,
            "parameters": 1614.3,
            "temporaries": 117.2,
            "kept": 19.5,
            "workspace": 16.25,
        },
        {},
        "8-bit-optimizer",
    ),
    "ctx256_forward": (
        25036.03,
        "forward",
        {"before-recording": 12998.5, "activations": 12005.6},
        {},
        "sdpa",
    ),
    "ctx256_forward_mixed": (26953.64, "forward", {"before-recording": 12998.5}, {}, "sdpa"),
}


@pytest.mark.skipif(not SNAPSHOTS.is_dir(), reason="the public snapshots are not here")
@pytest.mark.parametrize("name", MEASURED)
def test_public_snapshots(name: str) -> None:
    from findwall import api

    memory = api.read(SNAPSHOTS / f"{name}.pickle.gz").memory
    peak, phase, kinds, lines, first = MEASURED[name]
    assert memory.peak_gib is not None and memory.peak_gib * 1024 == pytest.approx(peak, abs=0.01)
    assert (memory.of, memory.phase) == ("requested", phase)
    found = {row.kind: row.gib * 1024 for row in memory.kinds}
    assert {kind: found[kind] for kind in kinds} == pytest.approx(kinds, rel=0.01)
    placed = {row.line: row.gib * 1024 for row in memory.lines[:3]}
    assert {line: placed[line] for line in lines} == pytest.approx(lines, rel=0.001)
    assert memory.ladder[0].fixes == [first]


def known(job: Recorder, kind: str, *names: str, device: int = 0, inside: int = 0) -> KnownMemory:
    """The job says that these are of this kind; `inside`: so many bytes behind where the block begins."""
    places = [job.held[name] for name in names]
    return KnownMemory(
        np.array([place + inside for place in places], np.uint64),
        np.array([job.blocks[place]["requested_size"] for place in places], np.int64),
        np.full(len(places), KINDS.index(kind), np.uint8),
        np.full(len(places), device, np.int32),
    )


def told(job: Recorder, said: KnownMemory) -> dict[str, int]:
    """What is alive at the end of the recording, with what the job says of it."""
    whole = replace(history("x", PlainPickle(cpp_pickle(job.snapshot()))), known=said)
    facts = device_memory(whole)[0]
    return at(facts, len(facts.history.events) - 1)


def test_what_the_job_says_wins_over_guessing() -> None:
    job = trained(steps=2)
    moments = [f"m{layer}" for layer in range(LAYERS)]
    guessed = told(job, known(job, "parameters"))
    assert guessed["optimizer-state"] == 2 * WEIGHTS and guessed["kept"] == LOGITS
    as_said = told(job, known(job, "gradients", "logits"))
    assert as_said["gradients"] == guessed["gradients"] + LOGITS and "kept" not in as_said
    moved = told(job, known(job, "parameters", *moments))
    assert moved["parameters"] == 2 * WEIGHTS and moved["optimizer-state"] == WEIGHTS


def test_what_lies_inside_a_block_tells_its_kind_and_what_lies_elsewhere_does_not() -> None:
    job = trained(steps=2)
    guessed = told(job, known(job, "parameters"))
    assert told(job, known(job, "gradients", "logits", inside=4096))["gradients"] > guessed["gradients"]
    assert told(job, known(job, "gradients", "logits", device=1)) == guessed
    assert told(job, known(job, "gradients", "logits", inside=1 << 50)) == guessed


def test_what_outlives_a_step_is_no_state_where_the_job_told_all_of_it() -> None:
    """The moments were made in the optimizer's step, or were there before it."""
    for before in (True, False):
        job = trained(steps=3, before=before, new_state=lambda step, new=not before: new and step == 0)
        said = known(job, "parameters")
        guessed, as_told = told(job, said), told(job, replace(said, tells_all_state=True))
        assert guessed["optimizer-state"] > 0 and "optimizer-state" not in as_told
        assert sum(as_told.values()) == sum(guessed.values())
        moments = known(job, "optimizer-state", "m0", "m1")
        some = told(job, replace(moments, tells_all_state=True))
        assert some["optimizer-state"] == int(moments.size.sum()) < guessed["optimizer-state"]
    assert as_told["kept"] == guessed.get("kept", 0) + guessed["optimizer-state"]


def test_findwall_s_own_wrappers_are_no_line_of_the_job() -> None:
    """Where no line of the job was recorded, torch's is the nearest."""
    job = trained()
    ours, torchs = (
        "/src/findwall/agent/step_ends/optimizerhooks.py:66:step",
        "/x/torch/optim/adamw.py:80:step",
    )
    job.alloc("state", MIB, (ours, torchs))
    (job.blocks[job.held["state"]])["frames"] = job.frames((ours, torchs))
    lines = {frame.file.rpartition("/")[2] for frame in device_memory(decoded(job.snapshot()))[0].lines[1]}
    assert "adamw.py" in lines and "optimizerhooks.py" not in lines
