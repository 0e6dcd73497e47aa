"""The document of a run whose memory was recorded too: one wall, one memory, whatever came from where."""

from __future__ import annotations

import gzip
import pickle
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from captures import FIXTURES
from findwall.examine import examine
from findwall.examine.memory_document import run_memory
from findwall.model.answers.memory_answer import (
    CaughtFailures,
    FailedModel,
    FailureGrowth,
    MemoryKindRow,
    OutOfMemory,
)
from findwall.model.diagnosis import Diagnosis, to_json
from findwall.model.machine import MemoryTotals
from findwall.model.measurement import (
    KnownAddresses,
    Measurement,
    RecordedMemory,
    RunInfo,
    StepColumns,
    Trace,
)
from findwall.model.memory_history import KINDS, RecordedRank
from findwall.readers.run_folder import read_run_folder
from findwall.report.markdown import to_markdown
from findwall.report.page.whole_page import to_page
from findwall.report.redacted import redacted
from findwall.report.terminal import to_text
from memory_samples import LOGITS, Recorder, trained
from memory_traces import WEIGHTS, train
from memory_traces import Trace as DrawnTrace

GIB, MIB = 1 << 30, 1 << 20
NS = 10**9
DIED = OutOfMemory(
    asked_gib=20.0,
    device_free_gib=1.0,
    free_gib=2.0,
    largest_free_gib=None,
    cause="size",
    phase="backward",
    line="train.py:31",
    device=0,
    total_gib=80.0,
    held_gib=70.0,
    kinds=[MemoryKindRow("parameters", 10.0, 100), MemoryKindRow("unknown", 60.0, 0)],
)


def steps(count: int = 10) -> StepColumns:
    zeros, took = [0] * count, [5_000_000] * count
    return StepColumns(took, [*took], zeros, zeros, zeros, zeros, zeros, [False] * count)


def leak(looks: int = 40) -> MemoryTotals:
    held = [4 * GIB + look * 30 * MIB for look in range(looks)]
    at = list(range(0, 10 * looks, 10))
    return MemoryTotals(at, [look * NS for look in range(looks)], held, held, held[-1], 80 * GIB)


def folder(path: Path, job: Recorder | None = None, trace: bool = True, **changes: object) -> Path:
    """A run on a GPU, with the snapshot of this job beside its trace."""
    info = RunInfo("train.py", ["train.py"], 1, "2026-01-01", "0.1.0", "3.11")
    rank = path / "rank0"
    rank.mkdir(parents=True)
    (path / "run.json").write_bytes(msgspec.json.encode(info))
    base = Measurement(
        device_kind="gpu",
        step_source="optimizer",
        steps=steps(),
        peak_memory=3 * GIB,
        total_memory=80 * GIB,
    )
    if trace:
        shutil.copy(FIXTURES / "eager_training.json.gz", rank / "trace.json.gz")
        base.trace = Trace(file="trace.json", steps=3)
    if job is not None:
        with gzip.open(rank / "snapshot.pickle.gz", "wb") as file:
            pickle.dump(job.snapshot(), file, protocol=4)
        rows = [(0, job.held["logits"], LOGITS)]
        (rank / "known-snapshot.json").write_bytes(msgspec.json.encode(KnownAddresses(gradients=rows)))
        base.memory = RecordedMemory("snapshot.pickle.gz", "known-snapshot.json")
    measured = msgspec.structs.replace(base, **changes)
    (rank / "measurement.json").write_bytes(msgspec.json.encode(measured))
    return path


def read(path: Path) -> Diagnosis:
    return examine(read_run_folder(path))


def test_a_trace_and_a_snapshot_make_one_document(tmp_path: Path) -> None:
    job = trained(steps=3)
    alone, both = read(folder(tmp_path / "a")), read(folder(tmp_path / "b", job))
    assert (both.wall.wall, both.wall.cause) == (alone.wall.wall, alone.wall.cause) and both.wall.wall
    assert both.budget == alone.budget and both.prescriptions == alone.prescriptions
    memory = both.memory
    assert memory.of == "requested" and memory.peak_gib == job.peak / GIB
    assert memory.total_gib == alone.memory.total_gib is not None
    assert sum(row.gib for row in memory.kinds) == pytest.approx(memory.peak_gib)
    assert memory.lines and memory.ladder and memory.fragmentation is not None
    assert alone.memory.kinds == [] and alone.memory.of == "allocated"


def test_what_a_snapshot_cannot_tell_comes_from_the_trace_beside_it(tmp_path: Path) -> None:
    """Its stacks are of Python alone, so no op is known: which products autocast would make narrow, say."""
    run = read_run_folder(folder(tmp_path, trained(steps=3)))
    trace = DrawnTrace(device=0, before=3 * sum(WEIGHTS))
    train(trace, steps=3)
    both = msgspec.structs.replace(run.first, timeline=trace.timeline(tmp_path))
    alone = {one.fixes[0] for one in run_memory(run, run.first)[0].ladder}
    memory = run_memory(msgspec.structs.replace(run, ranks=(both,)), both)[0]
    rungs = {one.fixes[0]: one for one in memory.ladder}
    assert alone and "pure-bf16" not in alone and rungs.keys() == alone | {"pure-bf16"}
    assert memory.of == "requested" and memory.peak_gib is not None
    assert rungs["pure-bf16"].peak_gib.mid == pytest.approx(memory.peak_gib / 2, rel=0.01)


@pytest.mark.parametrize(("total", "fits"), [(110, True), (70, None), (10, False)])
def test_what_torch_reserves_for_it_has_to_fit_too(tmp_path: Path, total: int, fits: bool | None) -> None:
    """Some 60 MiB at the peak, and half as much again is taken from the driver for it."""
    job = trained(steps=3)
    job.alloc("cached", job.peak // 2)
    job.free("cached")
    memory = read(folder(tmp_path, job, trace=False, total_memory=total * MIB)).memory
    assert next(one for one in memory.ladder if one.fixes == ["zero-1"]).fits is fits
    same = read(folder(tmp_path / "other", trained(steps=3), trace=False, total_memory=total * MIB)).memory
    assert memory.largest_batch is not None and same.largest_batch is not None
    assert memory.largest_batch < 0.9 * same.largest_batch or total < 110


def test_a_peak_outside_the_recorded_steps_is_told(tmp_path: Path) -> None:
    job = trained(steps=3)
    said = "Over the whole run allocated memory peaked at 3.0 GiB"
    assert any(note.startswith(said) for note in read(folder(tmp_path / "before", job)).notes)
    same = read(folder(tmp_path / "same", job, peak_memory=job.peak))
    assert not any(note.startswith("Over the whole run") for note in same.notes)


def test_it_is_shown_beside_the_wall_wherever_the_run_is_shown(tmp_path: Path) -> None:
    both = read(folder(tmp_path, trained(steps=3)))
    text, page = to_text(both), to_page(both)
    assert "THE WALL" in text and "optimizer-state" in text and "what makes it smaller" in text
    assert 'id="kinds"' in page and 'href="#memory"' in page
    assert "What memory holds at its peak" in to_markdown(both)
    assert to_text(redacted(both, None)[0]).count("train.py") == 0


def test_what_the_job_says_of_addresses_reaches_the_kinds(tmp_path: Path) -> None:
    run = read_run_folder(folder(tmp_path, trained(steps=3)))
    rank = run.first
    assert isinstance(rank, RecordedRank) and rank.memory is not None and rank.memory.known is not None
    assert rank.memory.known.kind.tolist() == [KINDS.index("gradients")]
    assert rank.memory.known.address.dtype == np.uint64


@pytest.mark.parametrize(
    "told",
    [
        RecordedMemory("measurement.json"),
        RecordedMemory("../rank0/snapshot.pickle.gz"),
        RecordedMemory("gone.pickle.gz"),
        RecordedMemory("snapshot.pickle.gz", "measurement.json", "../known"),
    ],
)
def test_files_that_are_none_are_left_out_with_a_note(tmp_path: Path, told: RecordedMemory) -> None:
    found = read(folder(tmp_path, trained(steps=3), memory=told))
    assert found.wall.wall is not None
    assert any("left out" in note or "cannot be read" in note for note in found.notes)


def test_a_leak_is_said_with_its_end_and_its_line(tmp_path: Path) -> None:
    plain = read(folder(tmp_path / "plain", totals=leak()))
    row = plain.memory.growth[0]
    assert row.gib_per_step == pytest.approx(3 * MIB / GIB) and row.line is None
    assert row.full_at_step == pytest.approx((80 * GIB - 4 * GIB) / (3 * MIB), abs=1)
    assert any("`findwall run --memory` names the line" in note for note in plain.notes)
    job = trained(steps=6, leak=lambda step: f"leak{step}")
    told = read(folder(tmp_path / "told", job, totals=leak()))
    assert told.memory.growth[0].line == "train.py:33" == told.memory.growth[1].line
    said = [note for note in told.notes if "Memory grows" in note]
    assert len(said) == 1 and "train.py:33" in said[0] and "full at step" in said[0]


@pytest.mark.parametrize(
    "totals",
    [
        MemoryTotals([1, 2], [1, 2], [1], [1, 2]),
        MemoryTotals([2, 1], [1, 2], [1, 1], [1, 2]),
        MemoryTotals([1, 2], [1, 2], [1, -1], [1, 2]),
        MemoryTotals(*([list(range(5000))] * 4)),
    ],
)
def test_totals_that_cannot_be_are_left_out(tmp_path: Path, totals: MemoryTotals) -> None:
    found = read(folder(tmp_path, totals=totals))
    assert found.memory.growth == []
    assert any("totals left out" in note for note in found.notes)


def test_a_job_that_died_after_its_steps_keeps_its_wall(tmp_path: Path) -> None:
    found = read(folder(tmp_path, oom=DIED, job_ended="OutOfMemoryError"))
    assert found.wall.wall is not None and found.memory.oom == DIED
    assert any(
        note.startswith("Out of memory: train.py:31 asked for 20.0 GiB of GPU 0") for note in found.notes
    )


def test_a_job_that_died_before_any_step_gets_that_as_its_answer(tmp_path: Path) -> None:
    path = folder(tmp_path, trace=False, steps=StepColumns(), oom=DIED, job_ended="OutOfMemoryError")
    found = read(path)
    assert found.wall.wall is None and found.memory.oom == DIED and found.memory.total_gib == 80.0
    assert "train.py:31 asked for 20.0 GiB of GPU 0 in backward" in found.wall.sentence
    for shown in (to_text(found), to_page(found), to_markdown(found)):
        assert "OUT OF MEMORY" in shown and "checkpoint activations" in " ".join(shown.split())
    hidden, _ = redacted(found, None)
    assert "OUT OF MEMORY" in to_text(hidden)
    assert "train.py" not in hidden.wall.sentence and "20.0 GiB" in hidden.wall.sentence


def test_what_would_have_fitted_is_part_of_the_answer(tmp_path: Path) -> None:
    died = msgspec.structs.replace(DIED, room_gib=72.0)
    model = FailedModel([(GIB, 10)], 2.0)
    path = folder(tmp_path, trained(steps=3), trace=False, steps=StepColumns(), oom=died, failed_model=model)
    found = read(path)
    oom, said = found.memory.oom, " ".join(found.notes)
    assert oom is not None and oom.needs_gib is not None and (oom.needs_gib.low or 0) > 72.0
    assert oom.rung is not None and oom.rung.fixes == ["smaller-batch"] and oom.rung.how
    assert "The lines that hold most: adamw.py:7 (32 MiB of optimizer state), model.py:2" in said
    assert "that may fit: halve the batch; that leaves a peak of 79.3 GiB, " in said
    hidden, _ = redacted(found, None)
    assert "adamw.py" not in to_json(hidden).decode()
    assert "that may fit: halve the batch" in " ".join(hidden.notes)


@pytest.mark.parametrize(
    "model",
    [
        FailedModel([(-1, 1)]),
        FailedModel([(1, 1 << 40)]),
        FailedModel([(1 << 60, 1)]),
        FailedModel(forward=(0.5, 2.0)),
    ],
)
def test_a_model_that_cannot_be_is_left_out(tmp_path: Path, model: FailedModel) -> None:
    found = read(folder(tmp_path, oom=DIED, failed_model=model))
    assert found.memory.oom == DIED and any("failed_model left out" in note for note in found.notes)


def test_who_keeps_what_grew_is_the_jobs_own_affair(tmp_path: Path) -> None:
    grew = FailureGrowth(3.0, 2, 16, "self.secrets", "fit_secret", 20, 20)
    died = msgspec.structs.replace(DIED, cause="growth", growth=grew)
    path = folder(tmp_path, trace=False, steps=StepColumns(), oom=died, job_ended="OutOfMemoryError")
    found = read(path)
    assert "`self.secrets` in fit_secret holds 20 tensors" in found.wall.sentence
    hidden, _ = redacted(found, None)
    assert "`variable 1` in function 1 holds 20 tensors" in hidden.wall.sentence
    assert "secret" not in to_json(hidden).decode() and hidden.memory.oom is not None
    assert hidden.memory.oom.cause == "growth"


def test_failures_that_the_job_lived_on_after_are_one_line(tmp_path: Path) -> None:
    found = read(folder(tmp_path, caught=CaughtFailures(3, 9.0, "train.py:12")))
    assert found.memory.caught == CaughtFailures(3, 9.0, "train.py:12")
    assert sum("after 3 requests for memory that failed" in note for note in found.notes) == 1


def test_on_a_cpu_memory_is_what_is_resident(tmp_path: Path) -> None:
    totals = MemoryTotals([1], [1], [GIB], [GIB], 2 * GIB, 16 * GIB)
    changes = {"device_kind": "cpu", "peak_memory": None, "total_memory": None, "totals": totals}
    found = read(folder(tmp_path, trace=False, **changes))
    assert (found.memory.of, found.memory.peak_gib, found.memory.total_gib) == ("resident", 2.0, 16.0)
    assert "2.0 GiB resident of 16 GiB" in to_text(found)
