"""Kernels that Nsight Compute counted, from the file to what a person reads."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import findwall
from findwall import cli
from findwall.errors import InputError
from findwall.model.diagnosis import Diagnosis, from_json, to_json
from findwall.model.events import Kind
from findwall.readers import read_trace
from findwall.report.markdown import to_markdown
from findwall.report.terminal import to_text
from ncu_samples import ADD, ROOF, long, wide

NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>(T1::Params)"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(T1::Params)"
FIXTURES = Path(__file__).parents[1] / "fixtures"


def read(folder: Path, text: str) -> Diagnosis:
    path = folder / "kernels.csv"
    path.write_text(text)
    return findwall.read(path)


def test_the_document_is_a_budget_of_kernel_time(tmp_path: Path) -> None:
    figures = {**ROOF, "duration": "957.18", "dram": "3.9", "memory": "71", "sm": "30.1", "tensor": "30.1"}
    document = read(tmp_path, wide([(ADD, ROOF), (ODD, figures), (ADD, ROOF)]))
    assert (document.source.kind, document.source.ranks) == ("ncu", 0)
    assert document.step.ms == pytest.approx(1.20818)
    assert math.fsum(row.ms for row in document.budget) == pytest.approx(document.step.ms)
    assert (document.step.found_by, document.step.count) == ("kernels", 0)
    assert document.timeline.idle_share is None  # no gaps are known: not 0
    assert document.wall.cause == "misaligned-shapes"
    assert [one.fixes for one in document.prescriptions] == [["pad-shapes"]]
    assert document.prescriptions[0].step_ms.low is None
    assert document.notes[0].startswith("This is a verdict over kernel time")
    assert document.quality.checks_failed == {}
    assert [(one.calls, one.cause) for one in document.counted] == [
        (1, "misaligned-shapes"),
        (2, "memory-roof"),
    ]
    again = from_json(to_json(document))
    assert again.counted == document.counted


def test_nothing_left_to_recover_is_a_roof(tmp_path: Path) -> None:
    document = read(tmp_path, wide([(ADD, ROOF)]))
    assert (document.wall.wall, document.wall.cause) == ("bandwidth", "memory-roof")
    product = {**ROOF, "tensor": "90.4", "sm": "90.4", "dram": "13"}
    assert read(tmp_path, wide([(NVJET, product)])).wall.cause == "at-the-roof"


def test_a_little_beside_a_roof_is_what_comes_next(tmp_path: Path) -> None:
    slow = {**ROOF, "duration": "12", "dram": "10", "memory": "10"}
    document = read(tmp_path, wide([(ADD, ROOF), (ADD.replace("add", "mul"), slow)]))
    assert document.wall.cause == "memory-roof"
    assert document.wall.next is not None and document.wall.next.cause == "slow-kernels"
    assert "slow-kernels could give back only 11 us" in document.wall.sentence
    assert document.quality.checks_failed == {}


def test_what_the_counters_do_not_tell_is_no_verdict(tmp_path: Path) -> None:
    document = read(tmp_path, wide([(ADD, {"duration": "125.5"})]))
    assert document.wall.wall is None
    assert document.wall.between == []
    assert "--set full" in document.wall.sentence
    assert document.counted[0].dram_share is None


def test_a_floor_that_only_the_device_tells_is_not_guessed(tmp_path: Path) -> None:
    figures = {"duration": "900", "dram": "5", "memory": "20", "sm": "80"}
    document = read(tmp_path, long([(SIMT, figures)]))
    assert document.wall.wall is None
    assert document.wall.between == [["compute", "fast-path-off"]]
    named = read(tmp_path, wide([(SIMT, {**figures, "tensor": "0", "device": "NVIDIA H200"})]))
    assert named.wall.cause == "fast-path-off"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_terminal_says_it_all_in_its_width(tmp_path: Path, width: int) -> None:
    hostile = "void evil\x1b[31m<script>::kernel<1>(int)"
    document = read(tmp_path, wide([(ADD, ROOF), (hostile, {**ROOF, "dram": "20"})]))
    text = to_text(document, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "no step and no gaps" in " ".join(text.split())
    assert "85 %" in text
    assert to_markdown(document)


def test_the_page_can_be_drawn(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(wide([("a<script>", ROOF)]))
    assert cli._run(["read", str(path), "--page", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "a<script>" not in page
    assert "it uses 85 % of the DRAM bandwidth" in page
    assert "of the step" not in page.partition('id="budget"')[2].partition('id="road"')[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["empty.csv"],
        ["foreign.csv"],
        ["cut.csv"],
        ["one.ncu-rep"],
        ["good.csv", "--step-ms", "4"],
        ["good.csv", "--ncu", "good.csv"],
        ["good.csv", "good.csv"],
        ["trace.json.gz", "--ncu", "cut.csv"],
        ["trace.json.gz", "--ncu", "nowhere.csv"],
    ],
)
def test_what_cannot_be_read_ends_with_2_and_a_hint(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good = wide([(ADD, ROOF)])
    trace = (FIXTURES / "inference.json.gz").read_bytes()
    for name, content in {
        "empty.csv": b"",
        "foreign.csv": b"a,b\n1,2\n",
        "cut.csv": good[:-20].encode(),
        "one.ncu-rep": b"NVR\0" + bytes(30),
        "good.csv": good.encode(),
        "trace.json.gz": trace,
    }.items():
        Path(name).write_bytes(content)
    assert cli._run(["read", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) >= 2
    assert "JSON" not in err
    assert "Traceback" not in err


def test_a_trace_says_how_many_of_its_kernels_were_counted(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(wide([(ADD, {**ROOF, "read": "1", "written": "1"})]))
    document = findwall.read(FIXTURES / "inference.json.gz", ncu=path)
    plain = findwall.read(FIXTURES / "inference.json.gz")
    (note,) = [one for one in document.notes if "Nsight Compute" in one]
    assert note.startswith("0 of ") and "1 of 1 profiled launches match no kernel" in note
    assert document.budget == plain.budget


def test_what_if_needs_a_step(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(wide([(ADD, ROOF)]))
    assert "is not known" in findwall.read(path, what_if="pin-memory").notes[0]
    with pytest.raises(InputError, match="no step"):
        findwall.read(path, step_ms=3.0)


class TestEightOps:
    """Of one H200, in `fixtures/ncu`: the two pages give the same answer."""

    @pytest.fixture(params=["raw", "details"])
    def document(self, request: pytest.FixtureRequest) -> Diagnosis:
        return findwall.read(FIXTURES / "ncu" / f"{request.param}.csv.gz")

    def test_each_op_is_what_it_is(self, document: Diagnosis) -> None:
        by_grid = {tuple(one.grid or ()): one for one in document.counted}
        matmul, odd, add, copy, tiny = (
            by_grid[grid]
            for grid in ((2, 66, 1), (256, 2, 1), (65536, 1, 1), (262144, 1, 1), (16, 1, 1))
            if grid in by_grid
        )
        assert (matmul.bound, matmul.cause) == ("compute", "at-the-roof")
        assert odd.cause == "misaligned-shapes"
        assert (copy.cause, copy.dram_share) == ("layout-copies", pytest.approx(0.24, abs=0.005))
        assert "uncoalesced" in copy.sentence
        assert (tiny.bound, tiny.cause) == ("latency", "launch-bound")
        roofs = [one for one in document.counted if one.cause == "memory-roof"]
        assert len(roofs) == 3
        assert max(one.dram_share or 0.0 for one in roofs) == pytest.approx(0.85, abs=0.005)
        assert add.cause == "memory-roof"

    def test_the_verdict_is_the_odd_matmul(self, document: Diagnosis) -> None:
        assert (document.wall.wall, document.wall.cause) == ("compute", "misaligned-shapes")
        assert document.wall.next is not None and document.wall.next.cause == "layout-copies"
        assert "saves up to 786 us" in document.wall.sentence
        assert document.quality.checks_failed == {}

    def test_the_pages_agree_to_the_figure(self) -> None:
        raw, details = (findwall.read(FIXTURES / "ncu" / f"{page}.csv.gz") for page in ("raw", "details"))
        assert raw.wall.sentence == details.wall.sentence
        for one, other in zip(raw.budget, details.budget, strict=True):
            assert (one.cause, one.ms) == (other.cause, pytest.approx(other.ms, rel=1e-4))
            assert one.recoverable_ms == pytest.approx(other.recoverable_ms, rel=5e-3)
        figures = [json.loads(to_json(document))["counted"] for document in (raw, details)]
        for one, other in zip(*figures, strict=True):
            assert (one["cause"], one["bound"], one["sentence"]) == (
                other["cause"],
                other["bound"],
                other["sentence"],
            )


def test_counted_bytes_reach_the_document_of_a_trace(tmp_path: Path) -> None:
    trace = FIXTURES / "inference.json.gz"
    timeline = read_trace(trace)
    row = next(
        row
        for row in timeline.rows(Kind.KERNEL).tolist()
        if (launch := timeline.launch_of(row)) is not None and launch.grid
    )
    name, launch = timeline.name_of(row), timeline.launch_of(row)
    assert launch is not None
    path = tmp_path / "kernels.csv"
    path.write_text(wide([(name, {**ROOF, "read": "3", "written": "4"})], grid=str(launch.grid)))
    document = findwall.read(trace, ncu=path)
    (note,) = [one for one in document.notes if "Nsight Compute" in one]
    assert "match no kernel" not in note and not note.startswith("0 of ")
    plain = {(one.name, one.op): one.bytes for one in findwall.read(trace).kernels}
    changed = [one for one in document.kernels if plain[one.name, one.op] != one.bytes]
    assert [one.name for one in changed] == [name]
