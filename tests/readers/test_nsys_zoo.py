"""Recorded jobs written out as tables of Nsight Systems: the trace's verdict, or none, and never another.

`FINDWALL_ZOO=all` tries every job, with and without the job's own marks of steps, op names, shapes and GPU.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from captures import FIXTURES
from findwall import api
from findwall.model.events import Kind
from findwall.readers import read_trace
from findwall.readers.nsys import read_export
from findwall.readers.nsys.nsys_names import kernel_name
from nsys_tables import copied, write_export

ALL = os.environ.get("FINDWALL_ZOO") == "all"
JOBS = ("h2d_pageable", "llama_1b", "mlp_compute", "pointwise_chain")
EVERY = (
    *JOBS,
    "gpt2_fp32_batch16",
    "gpt2_item_every_param",
    "gpt2_naive_attention",
    "gpt2_small_batch8",
    "resnet_starved",
    "rl_policy_infer",
    "vit_checkpoint_io",
)
LESS = {
    "shapes": "UPDATE NVTX_EVENTS SET text = substr(text, 1, instr(text, ', sizes') - 1) "
    "WHERE instr(text, ', sizes') > 0",
    "ranges": "DROP TABLE NVTX_EVENTS",
    "gpu": "DROP TABLE TARGET_INFO_GPU",
    "calls": "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
}


FEW = ("jobs/odd_widths.json.gz", "jobs/slow_loader.json.gz", "blind/birdseye_splat/rank0/trace.json.gz")
FIXED = sorted(
    str(path.relative_to(FIXTURES))
    for pattern in ("jobs/*.json.gz", "blind/*/rank0/trace.json.gz")
    for path in FIXTURES.glob(pattern)
)


def without(path: Path, statement: str) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("name", FIXED if ALL else FEW)
def test_a_recorded_job_as_an_export_gets_its_verdict_or_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.sqlite"
    write_export(path, read_trace(FIXTURES / name))
    told, found = api.read(FIXTURES / name).wall.cause, api.read(path).wall.cause
    assert found in (None, told)


def test_lengths_that_no_shape_tells_are_not_said_to_grow(tmp_path: Path) -> None:
    """Its steps set up a library for lengths that grow from step to step, as its shapes would show."""
    path = tmp_path / "a.sqlite"
    write_export(path, read_trace(FIXTURES / "blind/story_writer/rank0/trace.json.gz"), steps=None)
    assert "grow from step to step" not in api.read(without(path, LESS["shapes"])).wall.sentence


def test_without_shapes_nobody_knows_what_device_work_could_give_back(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    write_export(path, read_trace(shared / "zoo" / "pointwise_chain.json.gz"))
    found = api.read(without(path, LESS["shapes"]))
    assert found.wall.cause is None and found.wall.between == [["bandwidth", "unfused-pointwise"]]
    assert "--pytorch=autograd-shapes-nvtx" in found.wall.sentence


@pytest.mark.parametrize("job", EVERY if ALL else JOBS)
def test_an_export_gets_the_trace_s_verdict(shared: Path, tmp_path: Path, job: str) -> None:
    trace, path = shared / "zoo" / f"{job}.json.gz", tmp_path / "a.sqlite"
    timeline = read_trace(trace)
    write_export(path, timeline)
    (back,) = read_export(path).timelines
    assert len(back.rows(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)) == copied(timeline)
    told, found = api.read(trace), api.read(path)
    assert found.wall.cause == told.wall.cause
    assert found.step.ms == pytest.approx(told.step.ms, rel=0.05)


@pytest.mark.parametrize("job", EVERY if ALL else ("mlp_compute", "pointwise_chain"))
def test_an_export_with_less_in_it_gets_no_other_verdict(shared: Path, tmp_path: Path, job: str) -> None:
    trace, path = shared / "zoo" / f"{job}.json.gz", tmp_path / "a.sqlite"
    told = api.read(trace).wall.cause
    for missing, statement in LESS.items():
        path.unlink(missing_ok=True)
        write_export(path, read_trace(trace), steps=None)
        found = api.read(without(path, statement)).wall.cause
        assert found in (None, told), missing


def test_the_zoo_s_kernels_are_spelled_back_alike(shared: Path) -> None:
    """What names tell must not depend on who demangled them."""
    from findwall.step.kernel_classes import classify, math_in_name, uses_tensor_cores
    from nsys_tables import nsys_kernel

    timeline = read_trace(shared / "zoo" / "llama_1b.json.gz")
    rows = timeline.rows(Kind.KERNEL)
    names = {timeline.name_of(row) for row in rows.tolist()}
    for name in names:
        back = kernel_name(nsys_kernel(name))
        for told in (math_in_name, uses_tensor_cores, lambda one: classify(one, None, Kind.KERNEL)):
            assert told(back) == told(name), name
