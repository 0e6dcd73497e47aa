"""What other programs rely on holds for every trace at hand, with any step time a person may give."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from captures import FIXTURES, SHARED
from disguise import load, save
from findwall.errors import InputError
from findwall.examine import examine
from findwall.model.diagnosis import to_json
from findwall.model.measured_run import Run
from findwall.readers import open_run
from recordings import document as recorded

Document = dict[str, Any]

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "schema.json").read_text())
RECORDED = [*sorted(FIXTURES.glob("*.json.gz")), *sorted((FIXTURES / "jobs").glob("*.json.gz"))]
BESIDE = [*sorted((SHARED / "traces").glob("*.json.gz")), SHARED / "traces" / "v100_dlrm_8_ranks"]
GIVEN = {  # a step time, from the one under the profiler and the device's own work
    "nine tenths of the traced step": lambda traced, _: 0.9 * traced,
    "the traced step": lambda traced, _: traced,
    "half as long again": lambda traced, _: 1.5 * traced,
    "ten times the traced step": lambda traced, _: 10 * traced,
    "just below the device's work": lambda _, busy: 0.999 * busy,
}
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def read(path: Path) -> Document:
    return examined(open_run([path]))


def kept(path: Path) -> Document:
    """The same of a recording that others look at as well."""
    document: Document = json.loads(to_json(recorded(path)), parse_constant=_refuse)
    return document


def examined(run: Run, step_ms: float | None = None) -> Document:
    document: Document = json.loads(to_json(examine(run, step_ms=step_ms)), parse_constant=_refuse)
    return document


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def misfits(value: Any, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """Where a value is not of the shape that the schema's few keywords ask for."""
    if "$ref" in schema:
        yield from misfits(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], at)
    if "anyOf" in schema and all(any(misfits(value, one)) for one in schema["anyOf"]):
        yield f"{at}: {value!r} is none of the kinds allowed"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is not one of {schema['enum']}"
    if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    yield from (f"{at} lacks {name}" for name in schema.get("required", ()) if name not in value)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(item, schema.get("items", {}), f"{at}[{index}]")
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                yield from misfits(value[name], inner, f"{at}.{name}")


def check(document: Document) -> None:
    assert list(misfits(document, SCHEMA)) == []
    assert [one["id"] for one in document["questions"]] == ["stable", "busy", "matmul", "peak"]
    _check_wall(document["wall"])
    _check_step(document["step"])
    if document["budget"]:
        _check_sums(document)
    for row in document["budget"]:
        _check_row(row)
    for one in document["prescriptions"]:
        low = one["step_ms"]["low"]
        assert low is None or 0 <= low < document["step"]["ms"]
        mid, high = one["step_ms"]["mid"], one["step_ms"]["high"]
        assert (mid is None and high is None) or low <= mid <= high
        assert mid is None or mid < document["step"]["ms"]
    for kernel in document["kernels"]:
        known = kernel["floor_ms"] is not None
        assert not known or 0 <= kernel["floor_ms"] <= kernel["ms"] * 1.0001
    mfu = document["mfu"]["mfu"]
    assert mfu is None or 0 < mfu <= 1


def _check_wall(wall: Document) -> None:
    assert (wall["wall"] is None) == (wall["cause"] is None)
    assert (wall["wall"] is None) == (wall["between"] is not None)
    assert wall["sentence"]


def _check_step(step: Document) -> None:
    bounds = [value for value in (step["low_ms"], step["ms"], step["high_ms"]) if value is not None]
    assert bounds == sorted(bounds)
    assert all(value > 0 for value in bounds)


def _check_sums(document: Document) -> None:
    step = document["step"]["ms"]
    assert math.fsum(row["ms"] for row in document["budget"]) == pytest.approx(step, rel=1e-3)
    assert math.fsum(row["ms"] for row in document["phases"]) == pytest.approx(step, rel=1e-3)


def _check_row(row: Document) -> None:
    assert row["ms"] > 0
    assert (row["wall"] is None) == (row["cause"] == "unknown")
    if row["low_ms"] is not None:
        assert row["low_ms"] <= row["ms"] <= row["high_ms"]
    assert row["recoverable_ms"] is None or 0 <= row["recoverable_ms"] <= row["ms"] * (1 + 1e-9)
    shown = [one["ms"] for one in row["evidence"] if one["ms"] is not None]
    assert all(0 <= value <= 1.02 * row["ms"] for value in shown)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_a_document_keeps_its_promises(path: Path) -> None:
    run, document = open_run([path]), kept(path)
    check(document)
    traced, busy = document["step"]["profiled_ms"], document["step"]["busy_ms"]
    for name, of in GIVEN.items():
        wanted = of(traced, busy)
        try:
            given = examined(run, wanted)
        except InputError:  # a step far shorter than the device's work is refused, and only that
            assert wanted < busy / 1.09, name
            continue
        check(given)
        assert given["step"]["source"] == "given"
        assert given["step"]["ms"] == pytest.approx(wanted)


@pytest.mark.parametrize("path", BESIDE, ids=lambda path: path.name.partition(".")[0])
def test_so_do_those_of_other_peoples_traces(path: Path, shared: Path) -> None:
    check(kept(path))


def test_kernels_that_take_no_time_are_no_error(tmp_path: Path) -> None:
    trace = load(FIXTURES / "eager_training.json.gz")
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            event["dur"] = 0
    check(read(save(trace, tmp_path / "instant.json")))


@pytest.mark.parametrize("damage", ["correlation", "External id", "device", "stream", "Input Dims", "grid"])
def test_rows_that_lack_an_argument_are_no_error(damage: str, tmp_path: Path) -> None:
    trace = load(FIXTURES / "eager_training.json.gz")
    for event in trace["traceEvents"]:
        event.get("args", {}).pop(damage, None)
    check(read(save(trace, tmp_path / "lacking.json")))


@pytest.mark.parametrize("category", ["cuda_runtime", "cpu_op", "user_annotation", "kernel"])
def test_traces_that_lack_a_kind_of_row_are_no_error(category: str, tmp_path: Path) -> None:
    trace = load(FIXTURES / "eager_training.json.gz")
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("cat") != category]
    check(read(save(trace, tmp_path / "lacking.json")))
