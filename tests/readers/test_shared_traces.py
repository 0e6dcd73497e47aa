"""Real traces beside the project: figures known from outside, and what must not change them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from timeline_checks import check_consistent

from findwall.model.events import DEVICE_KINDS, Kind, Timeline
from findwall.model.intervals import union
from findwall.readers import open_run, read_trace

IDLE_PERCENT = {
    "v100_resnet50_workers0": 39.43,
    "v100_cnn_ns_timestamps": 1.58,
    "a100_cnn_ddp_rank0_of_2": 76.16,
    "b200_vllm_tp8_rank0": 86.27,
    "h100_qwen_forward": 8.07,
}


def idle_percent(timeline: Timeline) -> float:
    """From the first device event's start to the last one's end."""
    rows = timeline.rows(*DEVICE_KINDS)
    start, end = timeline.events.start[rows], timeline.events.end[rows]
    return float(100 * (1 - union(start, end).length / (end.max() - start.min())))


@pytest.mark.parametrize(("name", "percent"), IDLE_PERCENT.items())
def test_idle_share_over_the_span(shared: Path, name: str, percent: float) -> None:
    timeline = read_trace(shared / "traces" / f"{name}.json.gz", workers=1)
    assert idle_percent(timeline) == pytest.approx(percent, abs=0.01)


def test_every_trace_is_read_whole(shared: Path) -> None:
    for path in sorted(shared.glob("*/**/*.json.gz")):
        timeline = read_trace(path, workers=1)
        check_consistent(timeline)
        quality = timeline.quality
        assert (quality.damaged, quality.repaired, quality.cut_off, quality.notes) == (0, 0, False, []), path


def test_torch_1_8_ranges_are_annotations(shared: Path) -> None:
    timeline = read_trace(shared / "traces" / "v100_resnet50_workers0.json.gz", workers=1)
    names = {timeline.name_of(row) for row in timeline.rows(Kind.ANNOTATION)}
    assert sum(name.startswith("ProfilerStep#") for name in names) == 6
    assert not any(name.startswith("aten::") for name in names)
    assert timeline.header.shapes


def test_headers(shared: Path) -> None:
    amd = read_trace(shared / "traces" / "mi300x_qwen_forward.json.gz", workers=1).header
    assert (amd.shapes, amd.stacks, amd.memory) == (True, True, True)
    assert amd.devices[0].name == "AMD Instinct MI300X VF"
    b200 = read_trace(shared / "traces" / "b200_vllm_tp8_rank0.json.gz", workers=1).header
    assert (b200.rank, b200.world_size, len(b200.devices)) == (0, 8, 8)
    host = read_trace(shared / "traces" / "cpu_only_rank.json.gz", workers=1)
    assert len(host.rows(*DEVICE_KINDS)) == 0


def test_eight_ranks(shared: Path) -> None:
    run = open_run([shared / "traces" / "v100_dlrm_8_ranks"], workers=1)
    assert [timeline.header.rank for timeline in run.timelines] == list(range(8))
    assert not run.notes


def _changed(document: dict[str, Any], seed: int) -> dict[str, Any]:
    """Shuffled, renumbered, shifted, without arrows."""
    chance = random.Random(seed)
    numbers: dict[tuple[str, Any], int] = {}
    events = []
    for event in document["traceEvents"]:
        if event["ph"] in ("s", "f"):
            continue
        changed = dict(event)
        for name in ("pid", "tid"):
            changed[name] = numbers.setdefault((name, event.get(name)), chance.randrange(10**9))
        if "args" in event:
            changed["args"] = dict(event["args"])
            for name in ("correlation", "External id", "stream"):
                if isinstance(event["args"].get(name), int):
                    old = event["args"][name]
                    changed["args"][name] = numbers.setdefault((name, old), chance.randrange(10**9))
        if "ts" in changed:
            changed["ts"] += 12_345_678
        events.append(changed)
    chance.shuffle(events)
    return {**document, "traceEvents": events}


@pytest.mark.parametrize(
    "name", ["traces/a100_alexnet_cuda_sync", "zoo/mlp_compute", "traces/recsys_rank0_of_128"]
)
def test_the_answer_does_not_depend_on_order_or_numbers(shared: Path, tmp_path: Path, name: str) -> None:
    path = shared / f"{name}.json.gz"
    # Times as integers of nanoseconds through this test's own arithmetic would need exact text.
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=lambda text: round(float(text)))
    plain, changed = tmp_path / "a.json", tmp_path / "b.json"
    plain.write_text(json.dumps(document))
    changed.write_text(json.dumps(_changed(document, seed=3)))
    one, other = read_trace(plain, workers=1), read_trace(changed, workers=1)
    for column in ("start", "end", "kind", "device", "nbytes", "graph_node", "sequence"):
        assert getattr(one.events, column).tolist() == getattr(other.events, column).tolist(), column
    for first, second in ((one.name_of, other.name_of), (one.inputs_of, other.inputs_of)):
        assert [first(row) for row in range(len(one.events))] == [
            second(row) for row in range(len(one.events))
        ]
    assert idle_percent(one) == idle_percent(other)
