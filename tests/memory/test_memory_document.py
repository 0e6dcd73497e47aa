"""What a person and a program get of a snapshot."""

from __future__ import annotations

import json
import pickle
import random
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from findwall import cli
from findwall.memory.snapshots.pickled_values import RefusedError
from findwall.model.claims import Claim
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.report.phrases import notes, out_of_memory
from findwall.report.redacted import redacted
from findwall.report.terminal import to_text
from findwall.report.words import spoken
from findwall.report.words.documents import worded
from memory_samples import (
    BACKWARD,
    FORWARD,
    LOSS,
    MIB,
    STEP,
    Recorder,
    build,
    cpp_pickle,
    document_of,
    torch_2_0,
    train_step,
    trained,
    write,
)


def document(job: Recorder) -> Diagnosis:
    return document_of(job.snapshot())


def test_kinds_add_up_to_the_peak() -> None:
    job = trained(steps=3)
    memory = document(job).memory
    assert memory.peak_gib is not None and memory.peak_gib * 1024 * MIB == job.peak
    assert sum(row.gib for row in memory.kinds) == pytest.approx(memory.peak_gib)
    assert sum(row.gib for row in memory.lines) == pytest.approx(memory.peak_gib)
    assert (memory.of, memory.phase, memory.steps) == ("requested", "backward", 3)
    assert memory.reserved_gib is not None and memory.allocated_gib is not None
    assert memory.peak_gib <= memory.allocated_gib <= memory.reserved_gib
    assert memory.curve is not None and max(memory.curve.used_gib) == pytest.approx(memory.peak_gib)


def test_a_document_is_read_back_and_says_what_its_claims_do() -> None:
    found = document(trained(steps=3))
    again = from_json(to_json(found))
    assert again.memory == found.memory
    assert again.wall.sentence == spoken(again.wall.claim) and again.wall.wall is None
    assert [rung.how for rung in again.memory.ladder] == [spoken(rung.claim) for rung in again.memory.ladder]
    assert again.notes == [spoken(one) for one in again.remarks]


def test_the_terminal_shows_kinds_lines_and_rungs() -> None:
    text = to_text(document(trained(steps=3)), width=80)
    assert "MEMORY" in text and "requested, in backward" in text
    assert "activations" in text and "model.py:10" in text and "what makes it smaller" in text
    assert "NO VERDICT" not in text and max(map(len, text.splitlines())) <= 80
    assert to_text(document(trained(steps=3)), unicode=False).isascii()


def test_the_page_has_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pickle", trained(steps=3).snapshot())
    page = tmp_path / "page.html"
    assert cli._run(["read", str(path), "--page", str(page), "--json", str(tmp_path / "x.json")]) == 0
    text = page.read_text()
    assert 'id="kinds"' in text and 'id="ladder"' in text and "model.py:10" in text
    assert json.loads((tmp_path / "x.json").read_text())["memory"]["kinds"]


def test_a_shared_page_names_no_line() -> None:
    found, _ = redacted(document(trained(steps=3)), None)
    text = to_json(found).decode() + to_text(found)
    assert "model.py" not in text and "x.pickle" not in text
    assert found.memory.kinds[0].kind == "parameters" or found.memory.kinds


def test_a_failed_request_is_told_with_its_cause() -> None:
    job = Recorder()
    build(job)
    with job.recording():
        train_step(job)
        job.alloc("hidden", 3 * MIB)
        job.fail(64 * MIB, left=MIB)
    found = document(job)
    oom = found.memory.oom
    assert oom is not None and (oom.cause, oom.asked_gib * 1024) == ("size", 64)
    assert oom.line == "model.py:10" and oom.device_free_gib == pytest.approx(1 / 1024)
    assert found.wall.sentence.startswith("A request for 64 MiB failed")


def test_free_in_pieces_is_fragmentation() -> None:
    job = Recorder()
    with job.recording():
        for name in "abcd":
            job.alloc(name, 4 * MIB)
        job.free("a")
        job.free("c")
        job.fail(6 * MIB, left=0)
    oom = document(job).memory.oom
    assert oom is not None and oom.cause == "fragmentation"
    assert oom.largest_free_gib * 1024 == 4 and oom.free_gib * 1024 == 8


def test_a_peak_in_the_optimizer_says_what_cannot_help() -> None:
    job = Recorder()
    build(job)
    with job.recording():
        job.alloc("hidden", MIB, FORWARD)
        job.alloc("grad", 4 * MIB, BACKWARD)
        job.free("hidden", BACKWARD)
        job.alloc("update", 9 * MIB, STEP)
        job.free("update", STEP)
    found = document(job)
    assert found.memory.phase == "optimizer"
    assert "memory/optimizer-peaks" in [one.id for one in found.remarks]
    assert "smaller-batch" not in [rung.fixes[0] for rung in found.memory.ladder]


def test_growth_is_noted_with_its_line() -> None:
    found = document(trained(steps=6, leak=lambda step: f"leak{step}"))
    assert [(one.line, one.gib_per_step * 1024) for one in found.memory.growth] == [("train.py:33", 2.0)]
    assert any("grows by 2 MiB per step" in note for note in found.notes)


def test_what_was_not_recorded_is_said() -> None:
    job = Recorder()
    build(job)
    assert "memory/no-recording" in [one.id for one in document(job).remarks]
    bare = trained()
    for event in bare.events:
        event["frames"] = []
    assert "memory/no-stacks" in [one.id for one in document(bare).remarks]
    with job.recording():
        job.alloc("x", MIB, LOSS)
    assert "memory/no-backward" in [one.id for one in document(job).remarks]


def test_a_step_time_has_no_meaning_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.pickle", trained().snapshot())
    assert cli._run(["read", str(path), "--step-ms", "3"]) == 2
    assert "has no step" in capsys.readouterr().err


def test_mutated_snapshots_are_refused_or_told() -> None:
    """Whatever the bytes: a refusal, or a document that can be shown."""
    chance = random.Random(11)
    wholes = [
        pickle.dumps(trained(steps=3).snapshot(), 4),
        cpp_pickle(torch_2_0(trained(steps=2).snapshot())),
    ]
    told = 0
    for _ in range(300):
        data = bytearray(chance.choice(wholes))
        for _ in range(chance.randrange(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(RefusedError):
            assert to_text(document_of(bytes(data)))
            told += 1
    assert told


def test_each_change_has_its_line_and_what_is_not_predicted_its_reason() -> None:
    found = document(trained(steps=3)).memory
    assert found.ladder and all(one.patch for one in found.ladder)
    assert [one.fix for one in found.not_predicted] == ["torch-compile"]
    assert "The peak under torch.compile is unknown" in found.not_predicted[0].why


def test_a_job_that_ran_out_says_so_first_and_whole() -> None:
    found = document(trained(steps=3))
    parts = [Claim("memory-helps/host"), Claim("memory-failed/state", {"state_gib": 3.0})] * 3
    remarks = [*found.remarks, Claim("memory/failed", parts=parts)]
    ended = worded(replace(found, remarks=remarks, notes=[]))
    (told,) = out_of_memory(ended)
    assert len(told) > 240 and notes(ended)[0] == told and notes(ended).count(told) == 1
    shown = " ".join(to_text(ended).split())
    assert told in shown.replace("┃ ", "") and shown.count("3.0 GiB once complete") == 3
