"""A page to share: nothing of the job's own is left in it, and all that is not the job's own is."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures import FIXTURES
from examples import drawn
from findwall import cli
from findwall.examine.series import gather
from findwall.fixes import all_fixes
from findwall.model.applied import Trial
from findwall.model.claims import Claim, Evidence, Range, plain
from findwall.model.diagnosis import Diagnosis, KindRow, ModuleRow, NotWorthIt, WhatIf, from_json
from findwall.model.machine import Telemetry
from findwall.model.series import Lane, Samples, Series, StepSeries, StepTimeline, Stretch, Track
from findwall.report.page import to_page
from findwall.report.printable_names import kernel_name
from findwall.report.public import is_public_device, is_public_kernel, is_public_op
from findwall.report.redacted import redacted
from recordings import look

# Fields that hold a word of a fixed list, a version of the format, or what may be told: kernels and devices.
TOLD = {"schema", "device", "kernel", "class_", "bound", "id", "answer", "phase", "safety", "basis", "losses"}
TOLD |= {"compared", "verdict", "side", "cause", "causes", "wall", "moves", "fixes"}
# Fields that hold a name by itself.
NAMES = {"paths", "line", "op", "places", "names"}
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)"
# How a name comes along: in paths, modules, calls, hosts, arguments; cut, quoted, in capitals.
FORMS = (
    "{0}",
    "/home/{0}/{1}.py:12",
    "{0}.py:7 in {1}",
    "C:\\{0}\\{1}",
    "model.{0}.3.{1}",
    "{0}_{1}",
    "`{0}`",
    "--{0}={1}",
    "{0}.cluster.local",
    "{0}@{1}",
    "{0}::{1}",
    "{0}(49): {1}",
    "/data/{0}…",
    "aten::{0}_{1}",
    "cuda{0}",
    "{0}Backward0",
    "'{0}', \"{1}\"",
    "the loader at {0}.py:3 ({1})",
    "nn.Module: {0}_0",
    "idle: {0} {1}",
    "Memcpy {0}",
    "ProfilerStep#{0}",
    "Optimizer.step#{0}.step",
)


@cache
def told_anyway() -> str:
    """All that the page of no job says."""
    return to_page(whole_document(), None, "1.0").lower()


def random_words(seed: int) -> list[str]:
    """Eight that nobody but the job knows."""
    source = random.Random(seed)
    made: list[str] = []
    while len(made) < 8:
        word = "".join(source.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(source.randint(5, 14)))
        if word not in told_anyway():
            made.append(word)
    return made


class Secrets:
    """Makes strings of random words that nobody may see."""

    def __init__(self, seed: int) -> None:
        self.words = random_words(seed)
        self._random = random.Random(seed)

    def __call__(self) -> str:
        one, two = (self._random.choice(self.words) for _ in range(2))
        shape = self._random.choice((str, str.upper, str.capitalize))
        return self._random.choice(FORMS).format(shape(one), shape(two))

    def said(self, sentence: str) -> str:
        at = self._random.randrange(3)
        return (f"{sentence} {self()}", f"{self()}: {sentence}", f"{sentence.rstrip('.')} ({self()}).")[at]

    def put_in(self, value: Any, name: str = "") -> Any:
        """The same document with a secret in every text that can hold one."""
        if isinstance(value, msgspec.Struct):
            fields = {field: getattr(value, field) for field in value.__struct_fields__}
            told = {
                field: self.put_in(one, field) for field, one in fields.items() if not _is_fixed(value, field)
            }
            return msgspec.structs.replace(value, **told)
        if isinstance(value, str):
            return value if name in TOLD else self() if name in NAMES else self.said(value)
        if isinstance(value, list):
            return [self.put_in(one, name) for one in value]
        if isinstance(value, dict):
            return {
                self.said(key) if isinstance(key, str) else key: self.put_in(one, key)
                for key, one in value.items()
            }
        return value


def _is_fixed(value: msgspec.Struct, field: str) -> bool:
    """A field of a type that holds no other words; or of a name that may be told."""
    return (
        field in TOLD
        or "Literal" in _types(type(value))[field]
        or (type(value).__name__, field) == ("KernelRow", "name")
    )


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {one.name: str(one.type) for one in msgspec.structs.fields(kind)}


def whole_document() -> Diagnosis:
    """With something in every list."""
    found = from_json((FIXTURES / "documents" / "full.json").read_bytes())
    found.source.crash = "RuntimeError"
    found.wall.claim = Claim(
        "host-work/seen",
        {"spent_ms": 12.0, "step_ms": 41.3, "spent_share": 0.3, "on_cores": False},
        {"function": "main"},
        ["train.py:3"],
        [plain("a text that is not data")],
    )
    found.remarks = [plain("a note"), Claim("model/no-known-cause", {"unknown_share": 0.2})]
    found.modules = [ModuleRow("encoder.layers.0", 3.0), ModuleRow("head", 1.0)]
    found.environment = ["The CPU governor is powersave."]
    found.kinds = [KindRow("usual", 0.9, 40.0, None), KindRow("saving", 0.1, 80.0, 10, "saves a file")]
    found.trials = [Trial("tf32", Range(1, 2, 3), Range(1, 2, 3), "failed", why="it did not start")]
    found.what_if = WhatIf("tf32", ["tf32"], Range(), Range(), ["it is already on"])
    found.not_worth_it.append(NotWorthIt(["tf32"], 1.0, "it is already on", obvious=True))
    found.cost = {"hooks": "small", "list": ["one"]}
    found.quality.ignored = {"flow": 3}
    found.timeline.per_device[0].streams = [{"stream": 7, "label": "main"}]
    found.budget[1].evidence = [
        Evidence(f"{kernel_name(KERNEL)} [128×768] bf16: 4.31 ms", KERNEL, "aten::gelu")
    ]
    return found


def whole_series(names: list[str]) -> Series:
    """One step of these ranges on the host and one kernel, timed steps, and how it was called."""
    count = len(names)
    column = b"".join(at.to_bytes(4, "little") for at in range(count + 1))
    step = StepTimeline(
        unit_ns=1,
        span=100,
        step_from=0,
        step_to=100,
        tracks=[Track("stream 7", "device"), Track("worker", "host")],
        lanes=[Lane(0, 0, 1), Lane(1, 0, count)],
        names=[KERNEL, *names],
        causes=["none"],
        start=column,
        length=column,
        name=column,
        cause=bytes(count + 1),
        kind="usual",
    )
    timed = StepSeries(
        warm_up=3,
        why_warm_up="the steps were steady",
        timed=Stretch(3, [40.0, 41.0], ["usual", "saving"]),
        samples=Samples([3.0, 4.0], {"power_w": [500.0, 510.0]}),
        telemetry=Telemetry(),
    )
    return Series(step, "", timed, "", ["train.py", "--lr", "3e-4"], "2026-01-01", {"torch": "2.11.0"})


@given(seed=st.integers(0, 2**32))
@drawn(25)
def test_no_secret_survives(seed: int) -> None:
    secrets = Secrets(seed)
    document = secrets.put_in(whole_document())
    series = secrets.put_in(whole_series([secrets() for _ in range(6)]))
    series.timeline.names[0] = KERNEL
    open_page = to_page(document, series, "1.0").lower()
    assert all(word in open_page for word in secrets.words)
    page = to_page(*redacted(document, series, all_fixes()), "1.0")
    assert [word for word in secrets.words if word in page.lower()] == []
    for kept in ("41.3 ms", "NVIDIA H200", "nvjet_sm90_tst_256x128", "GeluCUDAKernelImpl"):
        assert kept in page.replace("\u00a0", " ")


RECORDED = ["blind/argon_dynamics", "blind/street_scenes", "runs/late_rank", "jobs/odd_widths.json.gz"]


@pytest.mark.parametrize("path", RECORDED)
def test_all_numbers_kernels_and_shapes_stay(path: str) -> None:
    run, found = look(FIXTURES / path)
    series = gather(run, found.facts)
    was = found.diagnosis
    document, beside = redacted(was, series, all_fixes())
    assert [row.name for row in document.kernels] == [row.name for row in was.kernels]
    assert (document.step, document.budget[0].ms) == (was.step, was.budget[0].ms)
    assert (document.wall.wall, document.wall.cause) == (was.wall.wall, was.wall.cause)
    assert [one.fixes for one in document.prescriptions] == [one.fixes for one in was.prescriptions]
    figures = re.compile(r"\d[\d.]* (?:ms|us|%)")
    assert figures.findall(document.wall.sentence) == figures.findall(was.wall.sentence)
    told = {name: value for name, value in was.machine.ceilings.items() if isinstance(value, float)}
    assert {name: value for name, value in document.machine.ceilings.items() if type(value) is float} == told
    assert document.quality == was.quality
    drawn_parts = [to_page(*both).count("<circle") for both in ((was, series), (document, beside))]
    assert drawn_parts[0] == drawn_parts[1]
    assert beside.timeline is not None and series.timeline is not None
    assert beside.timeline.start == series.timeline.start
    ops = [name for name in series.timeline.names if name.startswith("aten::")]
    assert set(ops) <= set(beside.timeline.names)


@pytest.mark.parametrize("path", RECORDED)
def test_every_sentence_that_is_data_stays(path: str) -> None:
    """A page that says nothing would be safe as well."""
    run, found = look(FIXTURES / path)
    was = found.diagnosis
    document, _ = redacted(was, gather(run, found.facts), all_fixes())
    assert document.wall.sentence.partition(" at ")[0] == was.wall.sentence.partition(" at ")[0]
    for row, other in zip(document.budget, was.budget, strict=True):
        assert len(row.evidence) == len(other.evidence) and all(one.text for one in row.evidence)
    assert all(one.sentence for one in document.questions)
    assert len(document.notes) == sum(one.id != "text" for one in was.remarks)


def test_the_same_name_is_the_same_everywhere() -> None:
    document = whole_document()
    document.modules = [ModuleRow("vision.tower", 3.0), ModuleRow("text.tower", 1.0)]
    line = Claim("evidence/sampled", {"seen_share": 0.5}, {"function": "load"}, ["train.py:9"])
    document.budget[0].evidence = [Evidence("", line="train.py:9", claim=line)]
    document.wall.claim = Claim("watched/host-at", parts=[Claim("watched/line", places=["train.py:9"])])
    found, _ = redacted(document, None)
    assert [row.module for row in found.modules] == ["module 1", "module 2"]
    (shown,) = found.budget[0].evidence
    assert shown.text.startswith(f"{shown.line} in function 1: the host was here")
    assert found.wall.sentence == f"The host is most often at {shown.line}."


def test_a_document_without_claims_is_told_in_neutral_words() -> None:
    """Those that older versions wrote have sentences alone, and a sentence may say anything."""
    document = from_json((FIXTURES / "documents" / "full.json").read_bytes())
    found, _ = redacted(document, None, all_fixes())
    cause = document.wall.cause
    assert found.wall.sentence == f"The wall is {cause}: `findwall explain {cause}` tells of it."
    assert found.notes == [] and found.environment == []
    assert [one.how for one in found.prescriptions] == [
        f"`findwall explain {one.fixes[0]}` tells how." for one in document.prescriptions
    ]
    assert to_page(found, None, "1.0")


def test_what_is_said_does_not_decide_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its id in the place of every sentence, all other fields come out the same."""
    found = look(FIXTURES / RECORDED[0])[1]
    plainly, _ = redacted(found.diagnosis, None, all_fixes())
    monkeypatch.setattr("findwall.report.redacted.spoken", lambda claim: claim.id if claim else "")
    by_id, _ = redacted(found.diagnosis, None, all_fixes())
    assert by_id.wall.sentence == "verdict/told"
    assert without_words(by_id) == without_words(plainly)


WORDED = {"sentence", "text", "how", "why", "what", "notes", "helps"}


def without_words(value: Any) -> Any:
    """A document, its sentences left out."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {key: without_words(one) for key, one in value.items() if key not in WORDED}
    return [without_words(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["NVIDIA H200 customer-7", "NVIDIA H200 (acme)", "acme", "NVIDIA"])
def test_no_tail_of_a_device_s_name_stays(name: str) -> None:
    assert is_public_device("NVIDIA H200") and not is_public_device(name)
    document = whole_document()
    document.machine.device = name
    assert redacted(document, None)[0].machine.device == "device 1"


@pytest.mark.parametrize(
    "name",
    ["my_secret_kernel", "void acme::gemm<int>(int)", "ampere_acme_128x64_tn", "triton_poi_fused_acme_0"],
)
def test_kernels_that_a_job_names(name: str) -> None:
    assert not is_public_kernel(name) and is_public_kernel(KERNEL)


@pytest.mark.parametrize(
    "name",
    [
        "aten::mm",
        "cudaLaunchKernel",
        "AddmmBackward0",
        "Optimizer.step#AdamW.step",
        "nccl:all_reduce",
        "autograd::engine::evaluate_function: MmBackward0",
        "torch::autograd::AccumulateGrad",
        "ProfilerStep#3",
    ],
)
def test_names_that_torch_gives(name: str) -> None:
    assert is_public_op(name)


@pytest.mark.parametrize(
    "name",
    [
        "forward",
        "acme::mm",
        "MyLossBackward",
        "MyLossBackward0",
        "aten::customer_x",
        "cudaCustomer",
        "nccl:customer",
        "Optimizer.step#Shampoo.step",
        "train.py(3): main",
        "aten::mm x",
        "nn.Module: Encoder_0",
        "atens::mm",
        "data loading",
    ],
)
def test_names_that_a_job_gives(name: str) -> None:
    assert not is_public_op(name)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = FIXTURES / "blind" / "argon_dynamics"
    target = tmp_path / "page.html"
    assert cli._run(["report", str(run), "--redact", "-o", str(target)]) == 0
    page = target.read_text(encoding="utf-8")
    assert "argon" not in page and "cell_list" not in page and "fixtures" not in page
    assert json.loads(re.findall(r'id="diagnosis">(.*?)</script>', page, re.DOTALL)[0])["wall"]["wall"]
    document = tmp_path / "secret_name.json"
    document.write_bytes((FIXTURES / "documents" / "full.json").read_bytes())
    assert cli._run(["report", str(document), "--redact"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "report-redacted.html"
    assert "gpt2_small" not in (tmp_path / "report-redacted.html").read_text(encoding="utf-8")
