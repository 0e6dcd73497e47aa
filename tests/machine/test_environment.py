"""The audit: each finding fires, stays quiet, and what cannot be looked at is said and not raised."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from findwall.machine import environment, environment_gpu, environment_host
from findwall.machine.environment import Finding, Host, audit, versions
from findwall.machine.environment_gpu import GpuState, judge, parse_cores, select_visible
from findwall.machine.environment_host import cpu_quota, usable_cores
from findwall.units import GIB


def ids(findings: Any) -> set[str]:
    return {finding.id for finding in findings}


def host_at(root: Path, files: dict[str, str] | None = None, **changes: Any) -> Host:
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings: dict[str, Any] = {"environ": {}, "cores": 64, "affinity": frozenset(range(64))} | changes
    return Host(root=root, **settings)


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


# Variables.


@pytest.mark.parametrize(
    ("name", "value"),
    [("CUDA_LAUNCH_BLOCKING", "1"), ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), ("NVIDIA_TF32_OVERRIDE", "0"),
     ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"), ("TORCH_COMPILE_DEBUG", "1"), ("PYTHONMALLOC", "debug"),
     ("HIP_LAUNCH_BLOCKING", "1"), ("NCCL_P2P_DISABLE", "1")],
)  # fmt: skip
def test_a_variable_that_slows_the_job_is_a_warning(tmp_path: Path, name: str, value: str) -> None:
    found = audit(host=host_at(tmp_path, environ={name: value}))
    assert found[0].level == "warning"
    assert name in found[0].sentence
    assert found[0].fix


@pytest.mark.parametrize(
    ("name", "value"),
    [("CUDA_LAUNCH_BLOCKING", "0"), ("CUDA_LAUNCH_BLOCKING", ""), ("NVIDIA_TF32_OVERRIDE", "1"),
     ("TORCH_DISTRIBUTED_DEBUG", "off"), ("NCCL_DEBUG", "warn"), ("OMP_NUM_THREADS", "4")],
)  # fmt: skip
def test_a_harmless_value_is_no_finding(tmp_path: Path, name: str, value: str) -> None:
    assert ids(audit(host=host_at(tmp_path, environ={name: value}))) == {"no-nvml"}


def test_a_tracer_is_seen(tmp_path: Path) -> None:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        found = audit(host=host_at(tmp_path))
    finally:
        sys.setprofile(before)
    assert "python-tracer" in ids(found)


# torch's flags.


def torch_with(**changes: Any) -> Any:
    flags = {
        "debug": False,
        "anomaly": False,
        "deterministic": False,
        "cudnn": SimpleNamespace(
            is_available=lambda: True, enabled=True, deterministic=False, benchmark=True
        ),
        "matmul": SimpleNamespace(fp32_precision="tf32"),
        "threads": 1,
        "cuda": "13.0",
        "initialized": False,
    } | changes
    return SimpleNamespace(
        version=SimpleNamespace(debug=flags["debug"], cuda=flags["cuda"], hip=None),
        is_anomaly_enabled=lambda: flags["anomaly"],
        are_deterministic_algorithms_enabled=lambda: flags["deterministic"],
        get_float32_matmul_precision=lambda: "highest",
        get_num_threads=lambda: flags["threads"],
        backends=SimpleNamespace(cudnn=flags["cudnn"], cuda=SimpleNamespace(matmul=flags["matmul"])),
        cuda=SimpleNamespace(is_initialized=lambda: flags["initialized"]),
    )


def test_a_plain_fast_torch_has_nothing_to_report(tmp_path: Path) -> None:
    assert ids(audit(torch_with(), host_at(tmp_path))) == {"no-nvml"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"debug": True}, "debug-build"),
        ({"anomaly": True}, "anomaly-mode"),
        ({"deterministic": True}, "deterministic"),
        ({"matmul": SimpleNamespace(fp32_precision="ieee")}, "tf32-off"),
        ({"matmul": SimpleNamespace(fp32_precision="none")}, "tf32-off"),
        ({"matmul": SimpleNamespace()}, "tf32-off"),
        ({"threads": 65}, "too-many-threads"),
    ],
)
def test_each_flag_of_torch_is_read(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in ids(audit(torch_with(**changes), host_at(tmp_path)))


def test_cudnn_flags_are_read(tmp_path: Path) -> None:
    slow = SimpleNamespace(is_available=lambda: True, enabled=False, deterministic=True, benchmark=False)
    found = ids(audit(torch_with(cudnn=slow), host_at(tmp_path)))
    assert {"cudnn-off", "cudnn-deterministic", "cudnn-benchmark-off"} <= found


def test_the_real_torch_can_be_looked_at() -> None:
    torch = pytest.importorskip("torch")
    torch.autograd.set_detect_anomaly(True)
    try:
        found = audit(torch)
    finally:
        torch.autograd.set_detect_anomaly(False)
    assert "anomaly-mode" in ids(found)
    assert "audit-incomplete" not in ids(found)
    assert "anomaly-mode" not in ids(audit(torch))


def test_whatever_breaks_the_audit_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace()  # has none of torch's attributes
    found = audit(broken, host_at(tmp_path, environ={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert {"audit-incomplete", "cuda-launch-blocking"} <= ids(found)
    monkeypatch.setattr(environment, "look_at_host", lambda *_: 1 / 0)
    assert "audit-incomplete" in ids(audit(host=host_at(tmp_path)))


# Cores.


def test_a_quota_of_the_second_kind_is_found_in_the_group_or_above_it(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/job\n",
        "sys/fs/cgroup/pod/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/pod/job/cpu.max": "max 100000\n",
    }
    host = host_at(tmp_path, files, environ={"OMP_NUM_THREADS": "64"})
    assert cpu_quota(host) == 4
    assert usable_cores(host) == 4
    found = {finding.id: finding for finding in audit(host=host)}
    assert {"cpu-quota", "too-many-threads"} <= set(found)
    assert found["too-many-threads"].fix == "OMP_NUM_THREADS=4"


def test_a_quota_of_the_first_kind(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n0::/ignored\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert cpu_quota(host_at(tmp_path, files)) == 1.5


@pytest.mark.parametrize("text", ["max 100000", "", "x y", "0 100000", "1 0", "1 2 3", "-1 100000"])
def test_no_quota_is_none_and_not_zero(tmp_path: Path, text: str) -> None:
    host = host_at(tmp_path, {"sys/fs/cgroup/cpu.max": text})
    assert cpu_quota(host) is None
    assert "cpu-quota" not in ids(audit(host=host))


def test_affinity_counts(tmp_path: Path) -> None:
    host = host_at(tmp_path, affinity=frozenset({0, 1}), environ={"OMP_NUM_THREADS": "2"})
    found = ids(audit(host=host))
    assert "cpu-affinity" in found
    assert "too-many-threads" not in found


def test_a_throttled_container_is_a_warning(tmp_path: Path) -> None:
    stat = "usage_usec 1\nnr_periods 1000\nnr_throttled {}\n"
    busy = host_at(tmp_path / "a", {"sys/fs/cgroup/cpu.stat": stat.format(300)})
    quiet = host_at(tmp_path / "b", {"sys/fs/cgroup/cpu.stat": stat.format(10)})
    assert "cpu-throttled" in ids(audit(host=busy))
    assert "cpu-throttled" not in ids(audit(host=quiet))


@pytest.mark.parametrize(("size", "fires"), [(64 * 2**20, True), (2 * GIB, False), (0, False)])
def test_a_small_shm_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, fires: bool
) -> None:
    monkeypatch.setattr(environment_host.shutil, "disk_usage", lambda path: SimpleNamespace(total=size))
    assert ("small-shm" in ids(audit(host=host_at(tmp_path)))) is fires


# The GPU.

CALM = GpuState(
    index=0, name="NVIDIA H200", uuid="GPU-aaaa", reasons=0x4, clock_mhz=1700, max_clock_mhz=1980,
    busy_percent=99, power_limit_w=700, default_power_w=700, pids=(7,), used_bytes=GIB, total_bytes=140 * GIB,
    link_width=16, max_link_width=16, link_generation=5, max_link_generation=5, persistence=True, mig=False,
)  # fmt: skip


def judged(cuda_started: bool = True, own_pid: int = 7, own_ranks: int = 0, **changes: Any) -> set[str]:
    return ids(judge(replace(CALM, **changes), cuda_started, own_pid, own_ranks))


def test_a_busy_power_capped_gpu_is_normal() -> None:
    assert judged() == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reasons": 0x20}, "throttled-thermal"),
        ({"reasons": 0x40}, "throttled-thermal"),
        ({"reasons": 0x80}, "throttled-hardware"),
        ({"reasons": 0x02}, "clocks-set"),
        ({"reasons": 0, "clock_mhz": 900}, "clocks-low"),
        ({"power_limit_w": 400}, "power-limit"),
        ({"pids": (7, 8)}, "shared-gpu"),
        ({"link_width": 8}, "pcie-width"),
        ({"link_generation": 3}, "pcie-generation"),
        ({"persistence": False}, "persistence-off"),
        ({"mig": True}, "mig"),
    ],
)
def test_each_trouble_of_a_gpu_is_named(changes: dict[str, Any], expected: str) -> None:
    assert judged(**changes) == {expected}


@pytest.mark.parametrize(
    "changes",
    [
        {"reasons": 0x4, "clock_mhz": 900},  # the power cap lowers clocks: normal
        {"reasons": 0x1, "clock_mhz": 345, "busy_percent": 0, "link_generation": 1},  # idle saves power
        {
            "reasons": None,
            "clock_mhz": None,
            "pids": None,
            "link_width": None,
            "persistence": None,
            "mig": None,
        },
        {"link_width": 0, "max_link_width": 16},
    ],
)
def test_what_is_normal_or_unknown_is_no_finding(changes: dict[str, Any]) -> None:
    assert judged(**changes) == set()


def test_in_a_container_our_own_process_has_another_number() -> None:
    assert judged(own_pid=1, pids=(4711,)) == set()
    assert judged(own_pid=1, pids=(4711, 4712)) == {"shared-gpu"}
    assert judged(own_ranks=1, pids=(7, 8)) == set()  # two ranks of one job on one GPU
    assert judged(own_ranks=1, pids=(7, 8, 9)) == {"shared-gpu"}
    assert judged(cuda_started=False, own_pid=1, pids=(4711,)) == {"shared-gpu"}


def test_memory_that_nobody_owns_up_to_is_a_neighbour() -> None:
    idle = {"cuda_started": False, "pids": (), "busy_percent": 0}
    assert judged(**idle, used_bytes=60 * GIB) == {"shared-gpu"}
    assert judged(**idle, used_bytes=GIB) == set()


def test_cores_far_from_the_gpu_are_a_warning(tmp_path: Path) -> None:
    files = {"sys/bus/pci/devices/0000:ab:00.0/local_cpulist": "32-63"}
    state = GpuState(index=0, name="x", bus_id="00000000:AB:00.0")
    far = host_at(tmp_path, files, affinity=frozenset({0, 1}))
    near = host_at(tmp_path, files, affinity=frozenset({1, 40}))
    assert ids(environment_gpu._look_at_numa(state, far)) == {"numa-far"}
    assert ids(environment_gpu._look_at_numa(state, near)) == set()


def test_core_lists_are_parsed() -> None:
    assert parse_cores("0-2,8") == {0, 1, 2, 8}
    assert parse_cores("") == parse_cores("x-y") == frozenset()


GPUS = [GpuState(index=i, name="NVIDIA H200", uuid=f"GPU-{letter * 4}") for i, letter in enumerate("abcd")]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, "abcd"), ("", ""), ("2", "c"), ("3,0", "da"), ("GPU-bb", "b"), ("GPU-dddd,GPU-aaaa", "da"),
     ("1,-1,2", "b"), ("1,9,2", "b"), ("NoDevFiles", ""), ("GPU-", "")],
)  # fmt: skip
def test_visible_devices_are_the_jobs_own(visible: str | None, expected: str) -> None:
    chosen = select_visible(GPUS, visible, None)
    assert "".join(state.uuid[-1] for state in chosen) == expected


def test_numbers_name_no_certain_card_among_unequal_ones() -> None:
    mixed = [*GPUS[:1], GpuState(index=1, name="NVIDIA T1000", uuid="GPU-zzzz")]
    assert select_visible(mixed, "1", None) == mixed
    assert select_visible(mixed, "1", "PCI_BUS_ID") == mixed[1:]


class FakeNvml(ModuleType):
    """Two GPUs behind NVML; whatever is not defined here is a function the driver lacks."""

    NVML_CLOCK_SM = 1
    NVMLError = RuntimeError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.stopped = 0

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.stopped += 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}{handle}"

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x40 if handle == 1 else 0

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        raise RuntimeError("Not Supported")


def test_only_the_visible_gpu_is_judged_and_nvml_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    first = host_at(tmp_path, environ={"CUDA_VISIBLE_DEVICES": "0"})
    second = host_at(tmp_path, environ={"CUDA_VISIBLE_DEVICES": "GPU-11"})
    assert "throttled-thermal" not in ids(audit(host=first))
    assert "throttled-thermal" in ids(audit(host=second))
    assert library.stopped == 2
    assert "no-nvml" not in ids(audit(host=first))


def test_the_gpu_here_is_the_first_that_a_job_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment_gpu.gpu_here() is None
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert environment_gpu.gpu_here() == "NVIDIA H200"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert environment_gpu.gpu_here() is None
    monkeypatch.setattr(library, "nvmlDeviceGetHandleByIndex", lambda index: 1 / 0)
    assert environment_gpu.gpu_here() is None


def test_torchs_own_uuids_decide_where_cuda_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    torch = torch_with(initialized=True)
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_properties = lambda index: SimpleNamespace(uuid="11")
    found = audit(torch, host_at(tmp_path, environ={"CUDA_VISIBLE_DEVICES": "0"}))
    assert "throttled-thermal" in ids(found)


def test_a_torch_without_cuda_beside_a_gpu_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert "torch-without-cuda" in ids(audit(torch_with(cuda=None), host_at(tmp_path)))


def test_a_broken_nvml_is_information(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml()
    monkeypatch.setattr(library, "nvmlInit", lambda: 1 / 0)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = audit(host=host_at(tmp_path))
    assert found == [Finding("no-nvml", "info", found[0].sentence)]


# Versions.


def test_versions_need_no_torch() -> None:
    code = (
        "import sys; from findwall.machine.environment import versions, audit; found = versions(); audit();"
        "assert found['python'] and found['findwall']; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_versions_say_more_where_torch_is_loaded() -> None:
    torch = pytest.importorskip("torch")
    assert versions()["torch"] == torch.__version__
