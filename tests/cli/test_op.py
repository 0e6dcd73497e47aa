"""`findwall op`: what it takes, what it prints, and what it says of input that it cannot take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from findwall import cli
from findwall.attribute.onpaper import FORMATS, OPS, on_paper
from findwall.cli.op import ceilings_of, document, parse, sentence, to_text
from findwall.hardware import table_ceilings
from findwall.measure.ceilings import CeilingsReport, store
from findwall.model.machine import Ceilings
from test_english import MOST_WORDS, SENTENCE_END, found_in

H200 = ["--gpu", "NVIDIA H200"]


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def keep(device: str, created: str, bandwidth: float = 4e12, doubt: str = "") -> None:
    ceilings = Ceilings(
        device=device, source="measured", flops={"bf16": 7e14}, bandwidth=bandwidth, doubt=doubt
    )
    assert store(CeilingsReport(ceilings, driver="1", torch="2", created=created)) is not None


def test_the_screen_has_the_wall_and_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["op", "matmul", "4096x4096x4096", "bf16", *H200]) == 0
    out = capsys.readouterr().out
    assert "THE WALL: compute / at-the-roof" in out
    assert "174 us is the floor: 137.4 GFLOP at 791.5 TFLOP/s." in out
    assert "1,365 FLOP/byte; the ridge is at 183 (spec: 206)" in out
    assert "Below 202 rows it is bandwidth. From 202 rows on it is compute." in out
    assert "ceilings from the table" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "wall"),
    [
        ("matmul 8x4096x4096 bf16", "bandwidth / memory-roof"),
        ("matmul 8×4096×4096 BF16", "bandwidth / memory-roof"),
        ("matmul 8192x1023x4093 fp16", "compute / misaligned-shapes"),
        ("matmul 8192x4096x4096 fp32", "compute / fast-path-off"),
        ("conv 256x256x14x14x256x3x3 bf16", "compute / at-the-roof"),
        ("attention 8x16x2048x128 bf16", "compute / at-the-roof"),
        ("attention 8x16x1x128x2048 bf16", "bandwidth / memory-roof"),
        ("pointwise 100 fp32", "overhead / launch-bound"),
        ("pointwise 8192x4096 bf16 --reads 3", "bandwidth / memory-roof"),
        ("norm 8192x4096 bf16", "bandwidth / memory-roof"),
        ("optimizer 1.5B fp32", "bandwidth / memory-roof"),
        ("decode 8x7B bf16", "bandwidth / memory-roof"),
        ("decode 512x1.3e9 bf16", "compute / at-the-roof"),
    ],
)
def test_every_op_meets_its_wall(words: str, wall: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["op", *words.split(), *H200]) == 0
    assert f"THE WALL: {wall}\n" in capsys.readouterr().out


def test_a_misaligned_shape_is_told_with_the_padded_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["op", "matmul", "8192x1023x4093", "bf16", *H200]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1023 and 4093 are not multiples of 8. Pad 1023 to 1024 and 4093 to 4096" in out
    assert "8192×1024×4096 has a floor of" in out
    assert "Once padded, below" in out


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ("7B", 7 * 10**9),
        ("350m", 350 * 10**6),
        ("20k", 20_000),
        ("1.3e9", 1_300_000_000),
        ("1.5B", 15 * 10**8),
    ],
)
def test_counts_may_be_written_short(shape: str, sizes: int) -> None:
    assert parse("optimizer", shape, "fp32").dims == (sizes,)
    assert parse("decode", f"4x{shape}", "bf16").dims == (4, sizes)


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("matmull 8x8x8 bf16", "there is no op 'matmull'", "Did you mean matmul?"),
        ("fft 8 bf16", "there is no op 'fft'", "Known ops: matmul, conv"),
        ("matmul 8x8x8 bf61", "there is no format 'bf61'", "Did you mean bf16?"),
        ("matmul 8x8x8 posit", "there is no format 'posit'", "Known formats: fp64"),
        ("matmul 8x4096 bf16", "has 2 sizes and matmul takes 3", "Write matmul as MxKxN, as in 8x4096x4096."),
        ("attention 8x4096 bf16", "has 2 sizes and attention takes 4 to 5", "BxHxSxD[xT]"),
        ("matmul 8xx8 bf16", "'' in '8xx8' is not a whole number above zero", "Write matmul as MxKxN"),
        ("matmul 8x0x8 bf16", "'0' in '8x0x8' is not a whole number", "Write matmul"),
        ("matmul 8x-4x8 bf16", "'-4' in '8x-4x8' is not a whole number", "Write matmul"),
        ("matmul 4kx4kx4k bf16", "'4k' in '4kx4kx4k' is not a whole number", "Write matmul"),
        ("optimizer 1.5 fp32", "'1.5' in '1.5' is not a whole number", "Write optimizer as COUNT, as in 7B."),
        ("optimizer 7Q fp32", "'7Q' in '7Q' is not a whole number", "Write optimizer"),
        ("optimizer 1e99 fp32", "1e99 in '1e99' is too large", "Give sizes up to 1e+15."),
        ("optimizer 7B int8", "optimizer has no single int8 form", "Ask for one of fp64"),
        ("norm 8x8 bf16 --reads 2", "--reads does not go with norm", "Leave it out"),
        ("pointwise 8 bf16 --reads 0", "--reads", "--help"),
        ("matmul 8x8x8", "Missing argument 'FORMAT'", "--help"),
    ],
)
def test_bad_input_says_what_and_what_to_do(
    words: str, said: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(["op", *words.split(), *H200]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert said in first
    assert hint in second


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("nvidia h200", "NVIDIA H200"),
        ("H200", "NVIDIA H200"),
        ("L4", "NVIDIA L4"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("MI300X", "AMD Instinct MI300X"),
    ],
)
def test_a_gpu_goes_by_its_whole_name(gpu: str, name: str) -> None:
    assert ceilings_of(gpu) == table_ceilings(name)


@pytest.mark.parametrize(
    ("gpu", "hint"),
    [
        ("A100", "Did you mean 'NVIDIA A100-SXM4-40GB'"),
        ("NVIDIA H2000", "'NVIDIA H200'"),
        ("abacus", "Give the name its driver reports"),
    ],
)
def test_an_unknown_gpu_is_never_guessed(gpu: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["op", "matmul", "8x8x8", "bf16", "--gpu", gpu]) == 2
    err = capsys.readouterr().err
    assert f"no GPU called '{gpu}' is in the table" in err
    assert hint in err


def test_a_format_the_gpu_does_not_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["op", "matmul", "8x8x8", "bf16", "--gpu", "Tesla V100-SXM2-16GB"]) == 2
    err = capsys.readouterr().err
    assert "the bf16 FLOP/s of Tesla V100-SXM2-16GB is unknown, or it has none" in err
    assert "Ask for a format it has (fp64, fp32, fp16)" in err


def test_without_a_measured_gpu_one_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    keep("Some CPU, 4 cores", "2026-01-03")
    assert cli._run(["op", "matmul", "8x8x8", "bf16"]) == 2
    assert "--gpu NAME" in capsys.readouterr().err


def test_the_gpu_measured_here_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    keep("Some GPU", "2026-01-01")
    keep("NVIDIA H200", "2026-01-02", doubt="Another process uses the GPU")
    keep("Some CPU, 4 cores", "2026-01-03")
    assert ceilings_of(None).device == "NVIDIA H200"
    assert ceilings_of("some gpu").bandwidth == 4e12  # measured, though not in the table
    assert ceilings_of("H200").source == "measured"
    assert cli._run(["op", "decode", "1x7B", "bf16"]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA H200 · ceilings measured here" in out
    assert "3.50 ms is the floor" in out
    assert "Note: Another process uses the GPU, so these ceilings may be too low." in out


def test_json_has_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["op", "matmul", "8x4096x4096", "bf16", *H200, "--json"]
    assert cli._run([*words, "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "findwall-op/1"
    assert (found["wall"], found["cause"]) == ("bandwidth", "memory-roof")
    assert found["flops"] == 2 * 8 * 4096 * 4096
    assert found["floor_us"] == found["memory_us"] == pytest.approx(7.798, rel=1e-3)
    assert found["changes"] == [{"from": 1, "wall": "bandwidth"}, {"from": 202, "wall": "compute"}]
    assert found["padded"] is None
    assert found["sentence"].startswith("7.8 us is the floor")
    path = tmp_path / "op.json"
    assert cli._run([*words, str(path)]) == 0
    assert "THE WALL" in capsys.readouterr().out
    assert json.loads(path.read_text()) == found


def test_what_is_unknown_is_null_in_json_and_said_on_the_screen() -> None:
    """A card whose maker prints no arithmetic: bytes alone bound what its vector units do."""
    paper = on_paper(parse("norm", "8192x4096", "bf16"), table_ceilings("AMD Instinct MI308X"))
    found = document(paper)
    assert found["ridge"] is found["compute_us"] is found["spec_compute_us"] is None
    assert found["floor_us"] == found["memory_us"]
    assert "the ridge is unknown" in to_text(paper)


@pytest.mark.parametrize("op", OPS)
def test_sentences_are_short_and_plain(op: str) -> None:
    """Also of odd shapes, and of shapes too small for any kernel."""
    example = OPS[op].example
    shapes = {example, re.sub(r"\d+", "7", example), re.sub(r"\d+B?", "1001", example)}
    for shape in shapes:
        for number_format in set(FORMATS) & set(OPS[op].formats):
            paper = on_paper(parse(op, shape, number_format), table_ceilings("NVIDIA H200"))
            told = sentence(paper)
            assert re.match(r"\d", told), "the number comes first"
            assert [one for one in SENTENCE_END.split(told) if len(one.split()) > MOST_WORDS] == []
            assert found_in(told) + found_in(to_text(paper)) == []
