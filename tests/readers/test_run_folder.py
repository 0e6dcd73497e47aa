"""A run folder read back: whole, partial, damaged."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from captures import FIXTURES
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.applied import Trial
from findwall.model.claims import Range
from findwall.model.machine import Environment, Finding, Sampled
from findwall.model.measurement import TRIALS_FILE, Line, Measurement, RunInfo, StepColumns, Trace, Warmup
from findwall.readers.run_folder import is_run_folder, read_run_folder

TRACE = {
    "schemaVersion": 1,
    "record_shapes": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {}},
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#3",
            "pid": 1,
            "tid": 1,
            "ts": 5,
            "dur": 20,
        },
    ],
}


def columns(count: int = 10, evaluated: int = 0, device: bool = False) -> StepColumns:
    return StepColumns(
        host_ns=[20_000_000] * count,
        device_ns=[10_000_000 if device else None] * count,
        loader_ns=[2_000_000] * count,
        gc_ns=[0] * count,
        hook_ns=[1000] * count,
        batches=[1] * count,
        compiles=[0] * count,
        evaluated=[index < evaluated for index in range(count)],
    )


def measurement(**changes: object) -> Measurement:
    base = Measurement(
        step_source="optimizer",
        loader_seen=True,
        steps=columns(),
        warmup=Warmup(steps=7),
        trace=Trace(file="trace.json", steps=1),
        host_lines=[Line("train.py:8", "main", 0.5)],
        cost={"hook_share": 0.001},
    )
    return msgspec.structs.replace(base, **changes)


def write(folder: Path, *ranks: Measurement, trace: bool = True) -> Path:
    info = RunInfo("train.py", ["train.py"], len(ranks), "2026-01-01", "0.1.0", "3.11")
    (folder / "run.json").write_bytes(msgspec.json.encode(info))
    for rank in ranks:
        place = folder / f"rank{rank.rank}"
        place.mkdir()
        (place / "measurement.json").write_bytes(msgspec.json.encode(rank))
        if trace:
            (place / "trace.json").write_text(json.dumps(TRACE))
    return folder


def test_a_whole_folder(tmp_path):
    assert is_run_folder(write(tmp_path, measurement()))
    run = read_run_folder(tmp_path)
    assert run.kind == "run-folder" and len(run.ranks) == len(run.traced) == 1 and run.notes == ()
    (rank,) = run.ranks
    times = rank.step_times
    assert times is not None
    assert times.mean == pytest.approx(0.02) and times.discarded == 7 and times.source == "measured"
    assert times.loader_s == pytest.approx(0.002)
    assert rank.host_lines[0].place == "train.py:8"
    assert run.cost == {"hook_share": 0.001} and rank.device_kind == "cpu"


@pytest.mark.parametrize("evaluated", [1, 9])
def test_a_rank_knows_that_it_evaluates_in_most_steps(tmp_path, evaluated):
    write(tmp_path, measurement(steps=columns(10, evaluated=evaluated)))
    (rank,) = read_run_folder(tmp_path).ranks
    assert rank.evaluates is (evaluated == 9)


def test_kinds_of_steps_go_with_the_steps_that_are_kept(tmp_path):
    steps = columns(10, evaluated=1, device=True)
    steps.kind = ["saves" if index % 3 == 2 else "usual" for index in range(10)]
    steps.device_ns[-1] = None
    write(tmp_path, measurement(steps=steps, trace=Trace("trace.json", steps=2, kinds=["usual", "saves"])))
    (rank,) = read_run_folder(tmp_path).ranks
    assert rank.traced_kinds == ("usual", "saves")
    assert rank.step_times is not None and len(rank.step_times.kind) == len(rank.step_times.seconds) == 8
    assert [(one.name, one.every) for one in rank.step_times.kinds()] == [("usual", None), ("saves", 3)]


def test_the_devices_clock_is_believed_where_it_knows_enough(tmp_path):
    steps = columns(device=True)
    steps.device_ns[-1] = None
    write(tmp_path, measurement(steps=steps, device_kind="gpu"))
    times = read_run_folder(tmp_path).first.step_times
    assert times is not None and times.mean == pytest.approx(0.01)
    assert len(times.seconds) == 9


def test_rare_evaluations_are_left_out_and_usual_ones_are_not(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rare = read_run_folder(write(tmp_path / "a", measurement(steps=columns(10, 2))))
    usual = read_run_folder(write(tmp_path / "b", measurement(steps=columns(10, 5))))
    assert rare.first.step_times is not None and len(rare.first.step_times.seconds) == 8
    assert "held an evaluation" in rare.first.notes[0]
    assert usual.first.step_times is not None and len(usual.first.step_times.seconds) == 10


def test_without_a_trace_the_reason_is_a_note(tmp_path):
    run = read_run_folder(write(tmp_path, measurement(trace=Trace(why_not="--no-trace")), trace=False))
    assert run.traced == () and run.first.notes == ("no trace of rank 0: --no-trace",)
    assert run.first.step_times is not None


@pytest.mark.parametrize(("ended", "crash"), [("", ""), ("ended", ""), ("RuntimeError", "RuntimeError")])
def test_a_crash_is_told(tmp_path, ended, crash):
    run = read_run_folder(write(tmp_path, measurement(job_ended=ended)))
    assert run.crash == examine(run).source.crash == crash


def test_without_steps_and_trace_no_trace_is_blamed(tmp_path):
    empty = measurement(steps=StepColumns(), loader_seen=False, trace=Trace())
    said = examine(read_run_folder(write(tmp_path, empty, trace=False))).wall.sentence
    assert said == "Neither a trace nor step times were measured, so no wall can be named."


def test_a_trace_that_was_packed_is_found(tmp_path):
    folder = write(tmp_path, measurement())
    plain = read_run_folder(folder).first.timeline
    trace = folder / "rank0" / "trace.json"
    trace.with_name("trace.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
    trace.unlink()
    packed = read_run_folder(folder).first.timeline
    assert plain is not None and packed is not None
    assert packed.events.start.tolist() == plain.events.start.tolist()


def test_what_was_not_measured_is_unknown(tmp_path):
    empty = measurement(steps=StepColumns(), loader_seen=False, notes=["no step was found"])
    run = read_run_folder(write(tmp_path, empty))
    assert run.first.step_times is None and "no step was found" in run.first.notes
    assert run.peak_memory is None


def test_a_cpu_jobs_device_is_its_cores_however_early_it_ended(tmp_path):
    write(tmp_path, measurement(trace=Trace()))
    info = msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=RunInfo)
    info.cores = "Some CPU, 2 cores"
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(info))
    assert examine(read_run_folder(tmp_path)).machine.device == "Some CPU, 2 cores"
    later = measurement(trace=Trace(), device_name="Another CPU, 4 cores")
    (tmp_path / "rank0" / "measurement.json").write_bytes(msgspec.json.encode(later))
    assert examine(read_run_folder(tmp_path)).machine.device == "Another CPU, 4 cores"
    gpu = measurement(trace=Trace(), device_kind="gpu")
    (tmp_path / "rank0" / "measurement.json").write_bytes(msgspec.json.encode(gpu))
    assert examine(read_run_folder(tmp_path)).machine.device is None


def test_warnings_of_the_environment_reach_the_document(tmp_path):
    found = [
        Finding("slow", "warning", "It is slow.", "make it fast"),
        Finding("known", "info", "It is known."),
    ]
    write(tmp_path, measurement(environment=Environment(tuple(found))))
    assert examine(read_run_folder(tmp_path)).environment == ["It is slow. Fix: make it fast."]


def test_telemetry_written_before_it_was_a_type_is_read():
    first, second = read_run_folder(FIXTURES / "runs" / "ddp_one_wire").ranks
    assert first.telemetry.sm_clock_mhz == Sampled(1980.0, 1980.0, 1980.0)
    assert first.telemetry.throttle == {} and first.telemetry.cpu is None
    assert second.telemetry.gpm is not None and second.telemetry.gpm.sm is not None


def test_ranks_come_in_order_and_missing_ones_are_noted(tmp_path):
    write(tmp_path, *[measurement(rank=rank, world_size=12) for rank in (0, 2, 10)])
    (tmp_path / "run.json").write_text(
        (tmp_path / "run.json").read_text().replace('"world_size":3', '"world_size":12')
    )
    run = read_run_folder(tmp_path)
    assert [Path(timeline.path).parent.name for timeline in run.timelines] == ["rank0", "rank2", "rank10"]
    assert "3 of 12 ranks wrote their measurement, not 1, 3-9, 11" in run.notes


def test_a_killed_job_leaves_something_readable(tmp_path):
    write(tmp_path, measurement(), measurement(rank=1))
    (tmp_path / "run.json").unlink()
    (tmp_path / "rank0" / "trace.json").write_text('{"traceEvents": [')
    (tmp_path / "rank1" / "measurement.json").write_text('{"rank": 1, "st')
    run = read_run_folder(tmp_path)
    assert run.first.step_times is not None
    assert "run.json is missing" in run.notes
    assert any("rank1/measurement.json cannot be read" in note for note in run.notes)


def test_a_folder_without_measurements_is_an_error(tmp_path):
    assert not is_run_folder(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="holds no measurement"):
        read_run_folder(tmp_path)


def test_what_was_tried_is_read_with_the_run_and_left_out_where_it_is_broken(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / "runs" / "ddp_one_wire", tmp_path / "run"))
    tried = Trial("tf32", Range(mid=9.0), Range(mid=10.0), "faster", Range(mid=2.0), kept=True)
    (folder / TRIALS_FILE).write_bytes(msgspec.json.encode([tried]))
    assert read_run_folder(folder).trials == (tried,)
    (folder / TRIALS_FILE).write_text('[{"fix": 3}]')
    broken = read_run_folder(folder)
    assert broken.trials == () and any("trials.json is left out" in note for note in broken.notes)
