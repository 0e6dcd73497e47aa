"""`findwall op`: what it takes, what it prints, and what it says of input that it cannot take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from findwall import cli
from findwall.cli.around import op_run as op_probe
from findwall.cli.op import ceilings_of, parse
from findwall.errors import InputError
from findwall.machine import environment, environment_gpu
from findwall.machine.ceilings import CeilingsReport, store
from findwall.machine.hardware import table_ceilings
from findwall.model.machine import Ceilings
from findwall.model.probes import Probe, Probes
from findwall.op.op_on_paper import FORMATS, OPS, on_paper
from findwall.op.op_probes import Probed, Way
from findwall.probe import measuring as runner
from findwall.report.texts.op_text import document, sentence, to_text
from test_english import MOST_WORDS, SENTENCE_END, found_in

H200 = ["--gpu", "NVIDIA H200"]


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ceilings nor a GPU; who tests one gives it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environment_gpu, "gpu_here", lambda: None)


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
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("H100 NVL", "NVIDIA H100 NVL"),
    ],
)
def test_a_gpu_goes_by_its_whole_name(gpu: str, name: str) -> None:
    assert ceilings_of(gpu) == table_ceilings(name)


@pytest.mark.parametrize(
    ("gpu", "hint"),
    [
        ("A100", "Did you mean 'NVIDIA A100-SXM4-40GB' (1555 GB/s) or 'NVIDIA A100-SXM4-80GB' (2039 GB/s)"),
        ("NVIDIA H2000", "'NVIDIA H200'"),
        ("abacus", "Give the name its driver reports"),
    ],
)
def test_an_unknown_gpu_is_never_guessed(gpu: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["op", "matmul", "8x8x8", "bf16", "--gpu", gpu]) == 2
    err = capsys.readouterr().err
    assert f"--gpu {gpu} " in err and " ".join(hint.split()) in " ".join(err.split())


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


# -- run where the GPU is here ---------------------------------------------------------------------------


class Device:
    """A GPU that is here, by name, and how long its ops take beside their floor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "NVIDIA H200") -> None:
        self.gpu, self.driver, self.version, self.device = (
            name,
            "580",
            "2.11",
            types.SimpleNamespace(type="cpu"),
        )
        self.us: dict[str, float] = {}
        self.fails: Exception | None = None
        self.runs: list[Probe] = []
        monkeypatch.setattr(environment_gpu, "gpu_here", lambda: name)
        monkeypatch.setattr(op_probe, "find_gpu", lambda: self)
        monkeypatch.setattr(runner, "run_probes", self.run)
        monkeypatch.setattr(environment, "driver_version", lambda: "580")
        monkeypatch.setattr(environment, "versions", lambda: {"torch": "2.11"})

    def run(self, _target: object, plan: list[Probe], known: Probes | None) -> Probes:
        if self.fails is not None:
            raise self.fails
        ns = dict(known.ns) if known else {}
        fresh = [probe for probe in plan if probe.key not in ns]
        self.runs += fresh
        for probe in fresh:
            is_padded = probe is not plan[0] and probe.variant == plan[0].variant
            ns[probe.key] = 1e3 * self.us.get("padded" if is_padded else probe.variant, 10.0)
        return Probes(self.gpu, "580", "2.11", "today", ns)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def asked(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, Any]]:
    """The screen as one line, and the document."""
    assert cli._run(["op", *words.split()]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert cli._run(["op", *words.split(), "--json", "-"]) == 0
    return " ".join(shown.split()), json.loads(capsys.readouterr().out)


def test_an_op_is_run_where_its_gpu_is_here(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    screen, found = asked("matmul 8x4096x4096 bf16", capsys)
    assert "· NVIDIA H200 · ceilings from the table THE WALL: bandwidth / memory-roof" in screen
    assert "probed 10 us here, 1.3 times the floor change" in screen
    assert (found["probed_us"], found["probed_agrees"], found["probed_why_not"]) == (10.0, True, None)
    assert found["probed_padded_us"] is found["probed_fast_us"] is None
    assert len(device.runs) == 1, "the second answer comes from what was kept"
    asked("matmul 8x4096x4096 bf16 --gpu H200", capsys)
    assert len(device.runs) == 1
    asked("matmul 8x4096x4096 bf16 --probe", capsys)
    assert len(device.runs) == 3, "who asks for it gets it run"


def test_what_was_probed_for_others_stays(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    asked("norm 8192x4096 bf16", capsys)
    asked("matmul 8x4096x4096 bf16 --probe", capsys)
    asked("norm 8192x4096 bf16", capsys)
    assert [probe.op for probe in device.runs].count("aten::native_layer_norm") == 1


def test_a_slow_kernel_is_not_called_a_roof(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    device.us = {"as-is": 780.0}
    screen, found = asked("matmul 8x4096x4096 bf16", capsys)
    assert "THE WALL ON PAPER: bandwidth / memory-roof" in screen
    assert "780 us here is 100 times the floor of 7.8 us: slow kernels hold it up, not the roof." in screen
    assert "probed 780 us here, 100 times the floor, far above it: slow kernels, not the roof" in screen
    assert found["wall"] == "bandwidth"
    assert found["probed_agrees"] is False
    assert found["sentence"] in screen


def test_padding_is_shown_by_its_own_figure(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    device.us = {"as-is": 400.0, "padded": 110.0}
    screen, found = asked("matmul 8192x1023x4093 bf16", capsys)
    assert "THE WALL: compute / misaligned-shapes 400 us here and 110 us once padded" in screen
    assert "Pad 1023 to 1024 and 4093 to 4096." in screen
    assert "padded to 8192×1024×4096: 110 us" in screen
    assert (found["probed_us"], found["probed_padded_us"]) == (400.0, 110.0)
    device.us = {"as-is": 110.0, "padded": 112.0}
    screen, found = asked("matmul 8192x1023x4093 bf16 --probe", capsys)
    assert "THE WALL ON PAPER: compute / misaligned-shapes" in screen
    assert "so padding gains nothing. Leave its sizes as they are." in screen
    assert found["probed_agrees"] is False


def test_tensor_cores_are_shown_by_their_own_figure(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    device.us = {"as-is": 6000.0, "tf32": 800.0}
    screen, found = asked("matmul 8192x4096x4096 fp32", capsys)
    assert "6.00 ms here in fp32 and 800 us in tf32, on tensor cores. Let it run in TF32." in screen
    assert "; in tf32: 800 us" in screen
    assert (found["fast"], found["probed_fast_us"]) == ("tf32", 800.0)


def test_channels_last_is_shown_by_its_own_figure(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    device.us = {"as-is": 300.0, "nhwc": 100.0}
    screen, found = asked("conv 256x256x14x14x256x3x3 bf16", capsys)
    assert "300 us here and 100 us with channels-last tensors." in screen
    assert "; channels-last: 100 us" in screen
    assert found["probed_channels_last_us"] == 100.0


def test_an_op_below_its_floor_is_said_to_be(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    device.us = {"as-is": 6.0}
    screen, _ = asked("matmul 8x4096x4096 bf16", capsys)
    assert "6 us here is less than the floor on paper, 7.8 us: 33.69 MB moved" in screen
    assert "7.8 us is the floor" not in screen
    assert "probed 6 us here, less than the floor: some bytes stayed in the cache" in screen


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("decode 8x7B bf16", "a decoding step is a whole model, not one op"),
        ("matmul 8x4096x4096 fp8", "fp8 operands come with scales or wider results"),
        ("pointwise 8192x4096 bf16 --reads 4", "no single op reads 4 tensors"),
    ],
)
def test_why_an_op_is_not_run(
    device: Device, words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ("", " --probe"):
        screen, found = asked(words + more, capsys)
        assert f"probed not run here: {why}" in screen
        assert why in found["probed_why_not"]
        assert found["probed_us"] is found["probed_agrees"] is None
    assert device.runs == []


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: out of memory\nmore"), InputError("torch sees no GPU here", "hint")]
)
def test_the_paper_stands_where_the_device_fails(
    device: Device, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    device.fails = error
    screen, found = asked("matmul 8x4096x4096 bf16", capsys)
    assert "7.8 us is the floor" in screen
    assert f"probed not run here: {str(error).splitlines()[0]}" in screen
    assert found["probed_us"] is None


def test_no_probe_answers_on_paper(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    screen, found = asked("matmul 8x4096x4096 bf16 --no-probe", capsys)
    assert "NVIDIA H200" in screen
    assert "probed" not in screen
    assert found["probed_why_not"] == "--no-probe was given"
    assert device.runs == []


def test_another_gpu_is_answered_on_paper(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    screen, found = asked("matmul 8x4096x4096 bf16 --gpu L4", capsys)
    assert "probed" not in screen
    assert found["probed_why_not"] == "this machine has NVIDIA H200"
    assert cli._run(["op", "matmul", "8x8x8", "bf16", "--gpu", "L4", "--probe"]) == 2
    err = capsys.readouterr().err
    assert "this machine's GPU, NVIDIA H200, and NVIDIA L4 was asked about" in err
    assert "Leave out --probe or --gpu." in err
    assert device.runs == []


def test_a_gpu_here_that_nobody_knows_must_be_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Device(monkeypatch, "Abacus 9000")
    assert cli._run(["op", "matmul", "8x8x8", "bf16"]) == 2
    assert "run `findwall ceilings` where the GPU is" in capsys.readouterr().err
    keep("NVIDIA H200", "2026-01-02")
    assert ceilings_of(None, "Abacus 9000").device == "NVIDIA H200"
    keep("Abacus 9000", "2026-01-01")
    assert ceilings_of(None, "Abacus 9000").device == "Abacus 9000", "the one here, not the newest"


def test_without_a_gpu_there_is_no_probe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli._run(["op", "matmul", "8x8x8", "bf16", "--probe"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "findwall: torch sees no GPU here"
    assert "or leave --probe out" in second
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli._run(["op", "matmul", "8x8x8", "bf16", "--probe"]) == 2
    assert "torch is not installed here" in capsys.readouterr().err


def test_without_a_gpu_torch_is_not_imported() -> None:
    code = (
        "import sys; sys.modules['pynvml'] = None; from findwall import cli;"
        "assert cli._run(['op', 'norm', '8x8', 'bf16', '--gpu', 'H200']) == 0;"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ratio", [0.5, 1.3, 40.0])
@pytest.mark.parametrize("then", [0.3, 1.1])
def test_sentences_of_what_was_run_are_short_and_plain(op: str, ratio: float, then: float) -> None:
    example = OPS[op].example
    for shape in {example, re.sub(r"\d+", "7", example), re.sub(r"\d+B?", "1001", example)}:
        for number_format in set(FORMATS) & set(OPS[op].formats):
            paper = on_paper(parse(op, shape, number_format), table_ceilings("NVIDIA H200"))
            here = ratio * paper.floor_s
            ways: tuple[Way, ...] = ("padded", "fast", "channels-last")
            there: tuple[bool, ...] = (paper.aligned is not None, paper.fast is not None, op == "conv")
            probed = Probed(
                {"asked": here} | {way: then * here for way, one in zip(ways, there, strict=True) if one}
            )
            told, screen = sentence(paper, probed), to_text(paper, probed)
            assert re.match(r"\d", told), "the number comes first"
            assert [one for one in SENTENCE_END.split(told) if len(one.split()) > MOST_WORDS] == []
            assert found_in(told) + found_in(screen) == []
            assert max(map(len, screen.splitlines()[1:])) <= 80
