"""A verdict that rests on ceilings says where they come from, and when they may be too low."""

from __future__ import annotations

import msgspec
import pytest

from findwall.examine.examination import examine
from findwall.machine.hardware import table_ceilings
from findwall.model.claims import Claim
from findwall.model.diagnosis import Diagnosis
from findwall.model.machine import Ceilings
from findwall.model.measured_run import Rank, Run
from findwall.report import phrases
from findwall.report.terminal import to_text
from findwall.report.words import spoken
from sketch import H200, sketch

DOUBTFUL_ROOF = spoken(Claim("roof/doubtful"))
BUSY = "Other processes kept 1.4 of 2 cores busy meanwhile"
MEASURED = msgspec.structs.replace(table_ceilings(H200), source="measured", origin="measured on 2026-01-02")


def verdict(ceilings: Ceilings, gpu: str = "mMmMmMmMmMmMmMmMmM") -> Diagnosis:
    timeline = sketch(cpu="o" * len(gpu), gpu=gpu, steps="|     |     |     ")
    return examine(Run("torch-trace", ("job.json",), (Rank(timeline=timeline),)), 6.0, ceilings)


def doubted(ceilings: Ceilings) -> Ceilings:
    return msgspec.structs.replace(ceilings, doubt=BUSY)


def test_a_roof_on_doubtful_ceilings_is_doubted() -> None:
    document = verdict(doubted(MEASURED))
    assert document.wall.cause == "at-the-roof" and document.wall.sentence.endswith(DOUBTFUL_ROOF)
    assert any("may be too low" in note and "1.4 of 2 cores" in note for note in document.notes)
    screen = " ".join(to_text(document).replace("┃", " ").split())
    assert DOUBTFUL_ROOF in screen and "ceilings measured on a busy machine" in screen


def test_a_roof_on_sound_ceilings_is_not() -> None:
    document = verdict(MEASURED)
    assert document.wall.cause == "at-the-roof" and DOUBTFUL_ROOF not in document.wall.sentence
    assert not any("may be too low" in note for note in document.notes)


def test_a_wait_does_not_rest_on_them() -> None:
    document = verdict(doubted(MEASURED), gpu="k     k     k    k")
    assert document.wall.cause not in (None, "at-the-roof", "memory-roof")
    assert DOUBTFUL_ROOF not in document.wall.sentence


@pytest.mark.parametrize(
    ("ceilings", "said"),
    [
        (MEASURED, "ceilings measured"),
        (table_ceilings(H200), "ceilings from the table"),
        (doubted(MEASURED), "ceilings measured on a busy machine"),
        (msgspec.structs.replace(MEASURED, origin="/tmp/mine.json"), "ceilings from mine.json"),
        (
            msgspec.structs.replace(MEASURED, device="NVIDIA H100 PCIe"),
            "ceilings of NVIDIA H100 PCIe measured",
        ),
        (Ceilings(), "ceilings unknown"),
    ],
)
def test_the_job_line_says_where_they_come_from(ceilings: Ceilings, said: str) -> None:
    document = verdict(table_ceilings(H200))
    figures = {name: getattr(ceilings, name) or None for name in ("source", "origin", "device", "doubt")}
    document.machine.ceilings = figures
    assert phrases.job(document).endswith(f" · {said}")


def test_the_fourth_question_says_so_too() -> None:
    question = next(one for one in verdict(doubted(MEASURED)).questions if one.id == "peak")
    assert "(ceilings measured on a busy machine)" in question.sentence
