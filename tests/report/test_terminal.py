from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from findwall.model.claims import Range
from findwall.model.diagnosis import BudgetRow, Diagnosis, KernelRow, Mfu, NotWorthIt, to_json
from findwall.report import fix_phrases, phrases
from findwall.report.markdown import to_markdown
from findwall.report.terminal import render, to_text

Document = Callable[[str], Diagnosis]
ALL = ("full", "no_verdict", "nothing_known", "hostile", "cpu_only")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_line_fits(document: Document, name: str, width: int) -> None:
    lines = to_text(document(name), width=width).splitlines()
    assert max(cell_len(line) for line in lines) <= width


@pytest.mark.parametrize("name", ["full", "no_verdict", "nothing_known", "cpu_only"])
def test_it_is_one_screen(document: Document, name: str) -> None:
    assert len(to_text(document(name)).splitlines()) <= 46


def test_the_full_view_says_everything_once(document: Document) -> None:
    text = to_text(document("full"))
    for said in (
        "NVIDIA H200",
        "41.3 ms as given",
        "61.3 ms under the profiler",
        "198,209 tokens/s",
        "MFU     26 % of 989 TFLOP/s (bf16 dense, table)",
        "35–50 %",
        "✔ busy",
        "✘ peak",
        "THE WALL: compute / misaligned-shapes",
        "try first",
        "what else helps",
        "pad-shapes, a step of 28.4 ms at best:",
        "what will not help",
        "bf16-autocast: already on",
        "next wall  overhead / launch-bound",
        "other (3 causes)",
        "forward 12.4 ms",
    ):
        assert text.count(said) == 1, said


def test_what_matters_comes_first(document: Document) -> None:
    text = to_text(document("full"))
    order = ["THE WALL", "try first", "ms   share", "✔ stable", "evidence", "what will not help", "notes"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert text.startswith("┏━ THE WALL")
    assert "pad-shapes, a step of 28.4 ms at best" in "".join(text.splitlines(keepends=True)[:10])


@pytest.mark.parametrize("name", ALL)
def test_brief_is_how_the_view_begins(document: Document, name: str) -> None:
    whole, brief = to_text(document(name)), to_text(document(name), is_brief=True)
    assert whole.startswith(brief)
    assert len(brief.splitlines()) <= 15
    assert "✔" not in brief


def test_no_more_than_two_fixes_stand_first(document: Document) -> None:
    diagnosis = document("full")
    first = to_text(diagnosis, is_brief=True)
    shown = [item.fixes[0] for item in diagnosis.prescriptions if f"- {item.fixes[0]}" in first]
    assert shown == [item.fixes[0] for item in diagnosis.prescriptions[:2]]


def test_a_refusal_that_is_obvious_is_not_shown(document: Document) -> None:
    diagnosis = document("full")
    diagnosis.not_worth_it = [
        NotWorthIt(["cuda-graphs"], 1.0, "the job runs on the CPU", obvious=True),
        NotWorthIt(["sdpa"], 1.0, "no attention is written out"),
    ]
    for view in (to_text, to_markdown):
        assert "cuda-graphs" not in view(diagnosis)
        assert "sdpa" in view(diagnosis)
    assert b"cuda-graphs" in to_json(diagnosis)


def test_own_cost_is_told_where_it_matters(document: Document) -> None:
    diagnosis = document("full")
    said = "What findwall cost: its hooks took"
    diagnosis.cost = {"sentence": f"{said} 0.10 % of a step.", "hook_share": 0.001, "shadow_share": None}
    assert said not in to_text(diagnosis)
    diagnosis.cost["shadow_share"] = {"low": -0.02, "mid": 0.03, "high": 0.08}  # no more than noise
    assert said not in to_text(diagnosis)
    for dear in (
        {"hook_share": 0.02},
        {"shadow_share": {"low": 0.02, "mid": 0.03, "high": 0.04}},
        {"step_after_trace": 1.1, "trace": {"pause_s": 1.0, "profiler_stays": True}},
    ):
        assert said in to_text(msgspec.structs.replace(diagnosis, cost=diagnosis.cost | dear))


def test_without_a_verdict_the_most_that_is_known_is_shown(document: Document) -> None:
    diagnosis = document("full")
    assert phrases.known(diagnosis) == []
    diagnosis.wall.wall = diagnosis.wall.cause = None
    longest = max(diagnosis.budget, key=lambda row: row.ms)
    assert phrases.known(diagnosis)[0].startswith(f"17.2 ms (42 %) {longest.wall} / {longest.cause}")
    diagnosis.budget = [BudgetRow(None, "unknown", 41.3, None, None, None)]
    diagnosis.kernels = [KernelRow("k1", "aten::mm", "matmul", 1, 2.0), KernelRow("k2", None, "copy", 1, 9.0)]
    assert phrases.known(diagnosis) == ["9.00 ms (22 %) in k2", "2.00 ms (4.8 %) in aten::mm"]


def test_a_crash_is_the_first_note(document: Document) -> None:
    diagnosis = document("full")
    diagnosis.source.crash = "OutOfMemoryError\x1b[31m"
    assert phrases.notes(diagnosis)[0].startswith("The job failed (OutOfMemoryError)")


def test_plain_text_has_no_escapes_and_colour_has(document: Document) -> None:
    assert "\x1b" not in to_text(document("full"))
    assert "\x1b[" in to_text(document("full"), color=True)


def test_ascii_where_the_stream_has_no_more(document: Document) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    for name in ALL:
        render(document(name), Console(file=stream, width=80))
    text = raw.getvalue().decode("ascii")
    assert "+ busy" in text
    assert "x peak" in text
    assert "####" in text


def test_hostile_names_stay_text(document: Document) -> None:
    text = to_text(document("hostile"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "[bold]x[/bold]" in text  # shown, not obeyed
    assert ":smile:" in text


def test_a_share_above_one_is_refused(document: Document) -> None:
    assert "MFU" not in to_text(document("hostile"))
    diagnosis = document("full")
    diagnosis.mfu = Mfu(0.5, 1.2, 989.0, None, "")
    assert "HFU" not in to_text(diagnosis)


def test_without_a_verdict_it_says_between_what_and_what_to_do(document: Document) -> None:
    text = to_text(document("no_verdict"))
    assert "NO VERDICT YET" in text
    assert "THE WALL" not in text
    words = " ".join(text.replace("┃", " ").split())
    assert "compute / misaligned-shapes or overhead / launch-bound" in words
    assert "--step-ms" in words
    assert "46.0 ms (38.2–61.3) estimated from the trace" in words
    assert "6.0 (0.9–21.0)" in text
    assert "the host issues an op every 12 us" in words  # evidence of both sides


def test_unknown_is_never_zero(document: Document) -> None:
    text = to_text(document("nothing_known"))
    assert "step  unknown" in text
    assert "0 ms" not in text
    assert "0 %" not in text
    assert "cut off" in text
    cpu = to_text(document("cpu_only"))
    row = next(line for line in cpu.splitlines() if "slow-kernels" in line)
    assert row.endswith("?")


def test_the_bars_are_to_scale(document: Document) -> None:
    rows = [line for line in to_text(document("full")).splitlines() if "░" in line or "█" in line]
    lengths = [line.count("░") + line.count("█") for line in rows]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] / lengths[1] == pytest.approx(17.2 / 8.4, rel=0.15)
    assert rows[0].count("█") / lengths[0] == pytest.approx(12.9 / 17.2, rel=0.1)


def test_small_causes_are_folded_but_never_the_wall(document: Document) -> None:
    diagnosis = document("full")
    assert diagnosis.wall.next is not None
    diagnosis.wall.cause, diagnosis.wall.next.cause = "gather-scatter", "slow-kernels"
    causes = [bar.cause for bar in phrases.bars(diagnosis)]
    assert "gather-scatter" in causes
    assert "slow-kernels" in causes
    assert sum(bar.ms for bar in phrases.bars(diagnosis)) == pytest.approx(
        sum(row.ms for row in diagnosis.budget)
    )


def test_many_causes_become_few_rows(document: Document) -> None:
    diagnosis = document("full")
    diagnosis.budget = [BudgetRow("overhead", f"cause-{n}", 2.0, None, None, None) for n in range(20)]
    assert len(phrases.bars(diagnosis)) <= phrases.BARS_SHOWN + 1


def test_a_prediction_says_what_it_rests_on(document: Document) -> None:
    """Every view says whether ops were run here, curves were read or the trace alone was replayed."""
    example = document("full")
    first, second = example.prescriptions[:2]
    for item in (first, second):
        item.step_ms = Range(30.0, 32.0, 35.0)
    first.basis = second.basis = "probed"
    example.prescriptions = [first, second]
    for view in (to_text(example), to_markdown(example)):
        assert "predicted from its ops, run on this device" in " ".join(view.split())
    second.basis = "replay"
    said = " ".join(to_text(example).split())
    assert f"{' + '.join(second.fixes)} predicted by replaying the trace" in said
    first.basis = second.basis = None
    first.step_ms = second.step_ms = Range(30.0, None, None)  # a bound is no prediction
    assert "predicted" not in to_text(example)


def test_a_predicted_gain_is_an_interval(document: Document) -> None:
    prescription = document("full").prescriptions[0]
    prescription.step_ms = Range(30.0, 34.0, 38.0)
    prescription.safety = "changes-numerics"
    assert fix_phrases.gain(prescription) == "about 34.0 ms (30.0–38.0 ms), changes numerics"


def test_quality_is_silent_when_it_does_not_matter(document: Document) -> None:
    diagnosis = document("full")
    assert phrases.quality(diagnosis) == ""
    diagnosis.quality.launches_without_kernel = 9000
    diagnosis.quality.modelled_share = 0.5
    assert "9,000 launches have no kernel" in phrases.quality(diagnosis)
    assert "only 50 % of kernel time" in phrases.quality(diagnosis)


def test_what_a_fix_asks_of_a_person_is_explained_where_it_is_asked(document: Document) -> None:
    diagnosis = document("full")
    fixes = diagnosis.prescriptions
    risky = [msgspec.structs.replace(one, safety="changes-numerics") for one in fixes]
    safe = [msgspec.structs.replace(one, safety="safe") for one in fixes]
    for view in (to_text, to_markdown):
        text = " ".join(view(msgspec.structs.replace(diagnosis, prescriptions=risky)).split())
        assert text.count("changes numerics: results round differently, so compare losses") == 1
        assert "needs review:" not in text
        text = view(msgspec.structs.replace(diagnosis, prescriptions=safe))
        assert "numerics" not in text and "review" not in text


def test_a_percent_sign_stands_apart() -> None:
    sources = (Path(phrases.__file__).parents[1]).rglob("*.py")
    glued = [path.name for path in sources if re.search(r":\.\d%\}|\}%", path.read_text())]
    assert glued == []
