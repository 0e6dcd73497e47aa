"""The machine as the job finds it, looked at before anything is blamed: flags, limits, other people's work.

Nothing here touches the device or changes a setting, and nothing raises: what cannot be looked at becomes a
finding that says so.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from findwall.machine.environment_gpu import GpuState, look_at_gpus, nvml, nvml_driver
from findwall.machine.environment_host import Host, look_at_host
from findwall.machine.wiring import look_at_topology
from findwall.machine.wiring_findings import judge_topology
from findwall.model.machine import Finding
from findwall.model.topology import Topology

__all__ = ["Finding", "Host", "audit", "driver_version", "versions"]

# Variables that slow a job down or take a fast path away: what they do, and since when they count.
# name → (values that do nothing, level, sentence, fix)
_VARIABLES: dict[str, tuple[frozenset[str], str, str, str]] = {
    "CUDA_LAUNCH_BLOCKING": (
        frozenset({"0"}),
        "warning",
        "every kernel launch waits for the kernel: host and device never work at the same time",
        "unset CUDA_LAUNCH_BLOCKING",
    ),
    "HIP_LAUNCH_BLOCKING": (
        frozenset({"0"}),
        "warning",
        "every kernel launch waits for the kernel: host and device never work at the same time",
        "unset HIP_LAUNCH_BLOCKING",
    ),
    "AMD_SERIALIZE_KERNEL": (
        frozenset({"0"}),
        "warning",
        "kernels run one at a time, with waits between them",
        "unset AMD_SERIALIZE_KERNEL",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        frozenset({"0"}),
        "warning",
        "every tensor is a cudaMalloc and a cudaFree: the allocator's cache is off",
        "unset PYTORCH_NO_CUDA_MEMORY_CACHING",
    ),
    "NVIDIA_TF32_OVERRIDE": (
        frozenset({"1"}),
        "warning",
        "TF32 is off for every library, whatever the program asks for",
        "unset NVIDIA_TF32_OVERRIDE",
    ),
    "TORCH_COMPILE_DEBUG": (
        frozenset({"0"}),
        "warning",
        "torch.compile writes its debug files for every graph",
        "unset TORCH_COMPILE_DEBUG",
    ),
    "TORCH_DISTRIBUTED_DEBUG": (
        frozenset({"OFF"}),
        "warning",
        "collectives are checked across ranks before they run",
        "unset TORCH_DISTRIBUTED_DEBUG",
    ),
    "NCCL_P2P_DISABLE": (
        frozenset({"0"}),
        "warning",
        "the GPUs of this machine do not talk to each other directly",
        "unset NCCL_P2P_DISABLE",
    ),
    "PYTHONDEVMODE": (frozenset(), "warning", "Python runs in development mode", "unset PYTHONDEVMODE"),
    "PYTHONTRACEMALLOC": (
        frozenset({"0"}),
        "warning",
        "Python records every allocation",
        "unset PYTHONTRACEMALLOC",
    ),
    "PYTHONMALLOC": (
        frozenset({"pymalloc", "mimalloc", "malloc", "default"}),
        "warning",
        "Python's allocator runs with its debug checks",
        "unset PYTHONMALLOC",
    ),
    "NCCL_DEBUG": (
        frozenset({"WARN", "VERSION", "ERROR"}),
        "info",
        "NCCL logs as it goes",
        "NCCL_DEBUG=WARN is quiet",
    ),
    "TORCH_LOGS": (frozenset(), "info", "torch logs as it goes", "unset TORCH_LOGS"),
    "TORCHDYNAMO_DISABLE": (
        frozenset({"0"}),
        "info",
        "torch.compile does nothing",
        "unset TORCHDYNAMO_DISABLE",
    ),
    "TORCH_COMPILE_DISABLE": (
        frozenset({"0"}),
        "info",
        "torch.compile does nothing",
        "unset TORCH_COMPILE_DISABLE",
    ),
    "PYTORCH_JIT": (frozenset({"1"}), "info", "torch.jit runs as plain Python", "unset PYTORCH_JIT"),
}


def audit(
    torch_module: Any = None, host: Host | None = None, topology: Topology | None = None
) -> list[Finding]:
    """What about this process and machine would slow any job down, most serious first.

    `torch_module` is the job's own torch where it has imported one; it is only read. `topology`: how the
    machine is wired, where that was read already; else as much of it as matters to this job. Never raises.
    """
    host = host or Host()

    def wiring(library: Any, states: list[GpuState]) -> list[Finding]:
        return look_at_topology(library, states, host)

    looks: tuple[Callable[[], Iterable[Finding]], ...] = (
        lambda: look_at_variables(host.environ),
        lambda: look_at_torch(torch_module),
        look_at_python,
        lambda: look_at_host(host, torch_module),
        lambda: look_at_gpus(host, torch_module, wiring if topology is None else None),
        lambda: [] if topology is None else judge_topology(topology),
    )
    findings: list[Finding] = []
    for look in looks:
        try:
            findings += look()
        except Exception as error:  # noqa: BLE001 - inside a job, on machines nobody has seen: it runs on
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            sentence = f"Part of the environment could not be checked ({reason})."
            findings.append(Finding("audit-incomplete", "info", sentence))
    return sorted(findings, key=lambda finding: finding.level != "warning")


def look_at_variables(environ: Mapping[str, str]) -> Iterable[Finding]:
    for name, (harmless, level, sentence, fix) in _VARIABLES.items():
        value = environ.get(name, "")
        if value and value.upper() not in {quiet.upper() for quiet in harmless}:
            yield Finding(name.lower().replace("_", "-"), level, f"{name}={value[:40]}: {sentence}.", fix)


def look_at_python() -> Iterable[Finding]:
    if sys.gettrace() is not None or sys.getprofile() is not None:
        yield Finding(
            "python-tracer",
            "warning",
            "A debugger, coverage tool or Python profiler watches every call.",
            "run without it",
        )


def look_at_torch(torch: Any) -> Iterable[Finding]:
    """Flags of the job's torch. Reads settings only: asking for a device here could start CUDA too early."""
    if torch is None:
        return
    if getattr(torch.version, "debug", False):
        yield Finding("debug-build", "warning", "This torch is a debug build.", "install a release build")
    if torch.is_anomaly_enabled():
        sentence = "Autograd's anomaly mode is on: every backward op is checked and keeps a traceback."
        yield Finding("anomaly-mode", "warning", sentence, "torch.autograd.set_detect_anomaly(False)")
    if torch.are_deterministic_algorithms_enabled():
        sentence = "Deterministic algorithms are required, so some ops take a slower path."
        yield Finding("deterministic", "warning", sentence, "torch.use_deterministic_algorithms(False)")
    yield from _look_at_cudnn(torch.backends.cudnn)
    if _tf32_off(torch) and not torch.version.hip and torch.version.cuda:
        sentence = (
            "fp32 matmuls do not use the tensor cores (TF32 is off). This matters only where fp32 is used."
        )
        yield Finding("tf32-off", "info", sentence, 'torch.set_float32_matmul_precision("high")')


def _look_at_cudnn(cudnn: Any) -> Iterable[Finding]:
    if not cudnn.is_available():
        return
    if not cudnn.enabled:
        yield Finding("cudnn-off", "warning", "cuDNN is switched off.", "torch.backends.cudnn.enabled = True")
    if cudnn.deterministic:
        sentence = "cuDNN may use deterministic algorithms only."
        yield Finding(
            "cudnn-deterministic", "warning", sentence, "torch.backends.cudnn.deterministic = False"
        )
    if not cudnn.benchmark:
        sentence = (
            "cuDNN does not time its convolution algorithms (benchmark is off). This matters for "
            "convolutions."
        )
        yield Finding("cudnn-benchmark-off", "info", sentence, "torch.backends.cudnn.benchmark = True")


def _tf32_off(torch: Any) -> bool:
    # Reading the older flag raises in a program that set the newer one, so the newer one is asked first.
    newer = getattr(torch.backends.cuda.matmul, "fp32_precision", "none")
    if newer != "none":
        return bool(newer != "tf32")
    return bool(torch.get_float32_matmul_precision() == "highest")


def driver_version() -> str | None:
    """The GPU driver's version; needs neither torch nor a working NVML."""
    for module in ("nvidia", "amdgpu"):
        try:
            return Path(f"/sys/module/{module}/version").read_text().strip() or None
        except OSError:
            continue
    with nvml() as library:
        return None if library is None else nvml_driver(library)


def versions() -> dict[str, str | None]:
    """Versions of all that matters to speed. Never imports torch; says more where it is imported already."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "driver": driver_version(),
    }
    for package in ("findwall", "torch", "triton", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "version"):
        found["torch"] = str(torch.__version__)
        found["cuda"] = torch.version.cuda
        found["hip"] = torch.version.hip
        found["cudnn"] = _cudnn_version(torch)
    return found


def _cudnn_version(torch: Any) -> str | None:
    try:
        version = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    except RuntimeError:  # torch refuses a cuDNN that is not the one it was built with
        return None
    return None if version is None else str(version)
