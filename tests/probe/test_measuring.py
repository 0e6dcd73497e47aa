"""The runner of probes, on the CPU with toy shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from findwall.errors import InputError
from findwall.model.events import Inputs
from findwall.model.probes import ATTENTION, OPTIMIZER, UPLOAD, Probe, Probes
from findwall.probe import probe_cache
from findwall.probe.measuring import find_target, run_probes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("small_cache")

F = "float"
MM = Inputs([[4, 8], [8, 6]], [F, F], [[8, 1], [1, 8]], ["", ""])
ADDMM = Inputs(
    [[6], [4, 8], [8, 6], [], []], [F, F, F, "", ""], [[1], [8, 1], [1, 8], [], []], ["", "", "", "1", "1"]
)
CONV = Inputs(
    [[2, 8, 6, 6], [8, 8, 3, 3], *[[]] * 7],
    [F, F, *[""] * 7],
    [[288, 36, 6, 1], [72, 9, 3, 1], *[[]] * 7],
    ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "False"],
)
CONV_BACKWARD = Inputs(
    [[2, 8, 6, 6], [2, 8, 6, 6], [8, 8, 3, 3], *[[]] * 8],
    [F, F, F, *[""] * 8],
    [],
    ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
)
NORM = Inputs([[2, 8, 6, 6], *[[8]] * 4], [F] * 5, [], ["", "", "", "", "", "True", "0.1", "1e-05"])
NORM_BACKWARD = Inputs([[2, 8, 6, 6], [2, 8, 6, 6], *[[8]] * 5], [F] * 7)
SCORES_BIAS = Inputs([[2, 2, 8, 4], [2, 2, 8, 4], [1, 2, 8, 8]], [F] * 3, [], ["forward", "False"])
CAUSAL = Inputs([[2, 2, 8, 4], [2, 2, 8, 4], []], [F] * 3, [], ["backward", "True"])
FUSED_FORWARD = Inputs([*[[2, 8, 2, 4]] * 3, []], [F] * 3 + [""], [], [*[""] * 8, "0.", "1", "True"])
PARAMETERS = Inputs([[[4, 4], [8]]], [F], [], ["AdamW", "True"])
BATCH = Inputs([[1000]], ["unsigned char"])
RUNNABLE = [
    *(Probe("aten::mm", MM, variant) for variant in ("as-is", "bf16", "tf32", "padded")),
    Probe("aten::addmm", ADDMM, "bf16"),
    *(Probe("aten::cudnn_convolution", CONV, variant) for variant in ("as-is", "bf16+nhwc", "tf32+tuned")),
    Probe("aten::convolution_backward", CONV_BACKWARD, "bf16+nhwc"),
    Probe("aten::cudnn_batch_norm", NORM, "bf16+nhwc"),
    Probe("aten::cudnn_batch_norm_backward", NORM_BACKWARD, "nhwc"),
    Probe(ATTENTION, SCORES_BIAS, "sdpa"),
    Probe(ATTENTION, CAUSAL, "bf16+sdpa"),
    Probe("aten::_efficient_attention_forward", FUSED_FORWARD, "bf16"),
    Probe(OPTIMIZER, PARAMETERS, "fused"),
    Probe(UPLOAD, BATCH, "pinned"),
]
HOPELESS = [
    Probe("aten::nonsense", MM, "bf16"),
    Probe("aten::mm", Inputs([[4, 8], [9, 6]], [F, F]), "as-is"),
    Probe("aten::mm", Inputs([[10**9, 10**6], [10**6, 6]], [F, F]), "as-is"),
    Probe("aten::mm", Inputs([[4, 8]], [F]), "as-is"),
    Probe("aten::mm", Inputs([[4, -8], [8, 6]], [F, F]), "as-is"),
    Probe("aten::mm", Inputs([[4, 8], [8, 6]], ["c10::Odd", F]), "as-is"),
    Probe("aten::cudnn_convolution", Inputs(CONV.dims, CONV.types), "nhwc"),
]


@pytest.mark.parametrize("probe", RUNNABLE, ids=lambda one: f"{one.op}-{one.variant}")
def test_what_fixes_run_can_be_run(probe: Probe) -> None:
    found = run_probes(find_target("cpu", None), [probe])
    assert not found.skipped
    assert 0 < found.ns[probe.key] < 10e9


@pytest.mark.parametrize("probe", HOPELESS, ids=str)
def test_what_cannot_be_run_is_noted(probe: Probe) -> None:
    found = run_probes(find_target("cpu", None), [probe, RUNNABLE[0]])
    assert found.skipped[probe.key]
    assert list(found.ns) == [RUNNABLE[0].key]


def test_settings_are_as_they_were() -> None:
    before = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    run_probes(
        find_target("cpu", None), [Probe("aten::cudnn_convolution", CONV, "tf32+tuned"), *HOPELESS[:2]]
    )
    assert (torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()) == before


def test_what_is_known_is_not_run_again() -> None:
    known = Probes("cpu", "", "2", "today", {RUNNABLE[0].key: 7.0})
    shown: list[tuple[int, int]] = []
    found = run_probes(
        find_target("cpu", None),
        RUNNABLE[:2],
        known,
        progress=lambda done, total: shown.append((done, total)),
    )
    assert found.ns[RUNNABLE[0].key] == 7.0
    assert found.ns[RUNNABLE[1].key] > 0
    assert shown == [(1, 1)]


def test_no_op_is_begun_once_the_time_is_up() -> None:
    found = run_probes(find_target("cpu", None), RUNNABLE[:2], budget_s=-1.0)
    assert not found.ns
    assert set(found.skipped) == {probe.key for probe in RUNNABLE[:2]}


def test_a_gpu_job_needs_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="ran on NVIDIA H200, and torch sees no GPU here") as caught:
        find_target("gpu", "NVIDIA H200")
    assert "on the machine that runs the job" in caught.value.hint


def test_another_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA T4")
    with pytest.raises(InputError, match="ran on NVIDIA H200, and this machine has NVIDIA T4"):
        find_target("gpu", "NVIDIA H200")


def test_probes_are_kept_by_device_driver_and_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    probes = Probes("NVIDIA H200", "580", "2.11", "today", {RUNNABLE[0].key: 7.0})
    path = probe_cache.path_of("NVIDIA H200", "580", "2.11")
    assert probe_cache.store(probes, path)
    assert probe_cache.kept_probes("NVIDIA H200", "580", "2.11") == probes
    assert probe_cache.kept_probes("NVIDIA H200", "581", "2.11") is None
    path.write_text("{}")
    assert probe_cache.kept_probes("NVIDIA H200", "580", "2.11") is None


def test_another_cpu_is_refused() -> None:
    with pytest.raises(InputError, match="ran on Abacus, 3 cores, and this machine has"):
        find_target("cpu", "Abacus, 3 cores")
