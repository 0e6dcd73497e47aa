"""A job that runs out of memory: what is said, with its own ending as plain python's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import jobs as running
from fake_cuda import FakeCuda
from findwall.agent.allocations import failed_requests, oom_observer
from findwall.agent.allocations.failed_model import failed_model, forward_share
from findwall.agent.allocations.failed_requests import caught_failures, failed_request
from findwall.agent.allocations.failure_claim import caught_claim, failure_claim
from findwall.agent.allocations.failure_text import FailureText, failure_text
from findwall.agent.allocations.oom_observer import forget_failures, watch_failures
from findwall.apply.registry import REGISTRY
from findwall.model.answers.memory_answer import CaughtFailures, MemoryKindRow, OutOfMemory
from findwall.report.words import spoken

torch = pytest.importorskip("torch")
MIB, GIB = 1 << 20, 1 << 30


class OutOfMemoryError(RuntimeError):
    """As torch.OutOfMemoryError."""


NEW = (
    "CUDA out of memory. Tried to allocate {asked:.2f} GiB. GPU 1 has a total capacity of 80.00 GiB of which "
    "{free:.2f} GiB is free. {process}{allowed}Of the allocated memory {allocated:.2f} GiB is allocated by "
    "PyTorch, and {cached:.2f} GiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
NEWER = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
OLD = (
    "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 7.75 GiB total capacity; 6.50 GiB already "
    "allocated; 20.50 MiB free; 6.75 GiB reserved in total by PyTorch) If reserved memory is >> allocated"
)


def said_by_torch(
    asked: float = 4,
    free: float = 1,
    allocated: float = 70,
    cached: float = 2,
    process: str = "",
    allowed: str = "",
) -> OutOfMemoryError:
    return OutOfMemoryError(
        NEW.format(
            asked=asked, free=free, allocated=allocated, cached=cached, process=process, allowed=allowed
        )
    )


# -- what was said -----------------------------------------------------------------------------------------


def test_figures_are_read_from_torchs_words() -> None:
    told = failure_text(
        said_by_torch(process="Including non-PyTorch memory, this process has 75.25 GiB memory in use. ")
    )
    assert told == FailureText(False, 1, 4 * GIB, 80 * GIB, GIB, None, 75 * GIB + GIB // 4, 70 * GIB, 2 * GIB)
    limited = failure_text(said_by_torch(allowed="40.00 GiB allowed; "))
    assert limited is not None and limited.allowed == 40 * GIB


def test_older_versions_put_it_otherwise() -> None:
    told = failure_text(RuntimeError(OLD))
    assert told is not None and (told.device, told.asked) == (0, 512 * MIB)
    assert (told.allocated, told.cached) == (int(6.5 * GIB), GIB // 4)
    assert told.free == int(20.5 * MIB) and told.total == int(7.75 * GIB)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (RuntimeError(f"[enforce fail at alloc_cpu.cpp:127] err == 0. {NEWER} Error code 12"), 4096),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), 8),
        (MemoryError("Unable to allocate 7.00 TiB for an array with shape (9, 9)"), 7 * 1024 * GIB),
        (MemoryError(), None),
    ],
)  # fmt: skip
def test_the_hosts_memory_ends_too(error: BaseException, asked: int | None) -> None:
    told = failure_text(error)
    assert told is not None and told.on_host and told.asked == asked


class UnspeakableError(RuntimeError):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA out of memory"),
        RuntimeError("no memory of that"),
        KeyboardInterrupt(),
        UnspeakableError(),
        RuntimeError("size mismatch, got 12.00 GiB free"),
    ],
)
def test_what_is_no_lack_of_memory_is_left_alone(error: BaseException) -> None:
    assert failure_text(error) is None
    assert failed_request(error, FakeCuda().torch, None) is None


def test_figures_that_are_none_are_unknown() -> None:
    told = failure_text(RuntimeError("CUDA out of memory. Tried to allocate 1.2.3 GiB"))
    assert told == FailureText(False)


# -- why ---------------------------------------------------------------------------------------------------


def with_classes(cuda: FakeCuda) -> Any:
    """The job's torch: its classes are torch's own, its device is made up."""
    for name in ("nn", "optim", "Tensor", "strided"):
        setattr(cuda.torch, name, getattr(torch, name))
    cuda.torch.cuda.current_device = lambda: 1
    return cuda.torch


def failed(error: BaseException, seen: Any = None, **stats: int) -> OutOfMemory:
    cuda = FakeCuda(
        **{"allocated_bytes.all.current": 70 * GIB, "reserved_bytes.all.current": 72 * GIB, **stats}
    )
    found = failed_request(error, with_classes(cuda), seen)
    assert found is not None
    return found


OWN = "Including non-PyTorch memory, this process has {} GiB memory in use. "


@pytest.mark.parametrize(
    ("error", "cause", "helps"),
    [
        (said_by_torch(asked=4, free=1, cached=4), "fragmentation", "expandable_segments:True"),
        (said_by_torch(4, 1, 75, 3.5), "size", "Only 1.0 GiB of 80.0 GiB was free, and 3.5 GiB in"),
        (said_by_torch(2, 1.99, 77, 0, process=OWN.format("77.99")), "size", "Only 2.0 GiB"),
        (said_by_torch(free=8, cached=0), "unknown", "8.0 GiB was free"),
        (said_by_torch(4, 40, 33, 5, allowed="40.00 GiB allowed; "), "fragmentation", "expandable"),
        (said_by_torch(4, 40, 33, 3.5, allowed="40.00 GiB allowed; "), "limit", "memory_fraction"),
        (said_by_torch(process=OWN.format("79.00")), "size", "checkpoint activations"),
        (said_by_torch(asked=90, process=OWN.format("79.00")), "size", "compute it in parts"),
        (said_by_torch(process=OWN.format("30.00")), "others", "nvidia-smi"),
        (said_by_torch(4, 40, 38, 1, allowed="40.00 GiB allowed; "), "limit", "memory_fraction"),
        (RuntimeError("CUDA error: out of memory"), "unknown", ""),
    ],
)  # fmt: skip
def test_the_cause_and_what_helps_first(error: BaseException, cause: str, helps: str) -> None:
    found = failed(error)
    assert found.cause == cause
    words = spoken(failure_claim(found))
    assert helps in words and words.startswith("Out of memory: ")
    assert all(len(part.split()) <= 45 for part in words.split(". "))


def test_without_the_drivers_word_a_context_is_nobody_elses() -> None:
    """The message of a container names no process: what is neither free nor torch's may be the context."""
    assert failed(said_by_torch(asked=6, free=1, allocated=75, cached=3.5)).cause == "size"


def test_an_allocator_that_grows_its_segments_already_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = failed(said_by_torch(cached=8))
    assert found.is_expandable and "Pad or bucket" in spoken(failure_claim(found))


def test_a_device_that_holds_mostly_model_needs_no_smaller_batch() -> None:
    found = OutOfMemory(
        4.0, 1.0, 0.0, None, "size", "optimizer", "train.py:9", 0, total_gib=80.0, held_gib=70.0
    )
    found.kinds = [
        MemoryKindRow("parameters", 20.0, 9),
        MemoryKindRow("optimizer-state", 40.0, 18),
        MemoryKindRow("unknown", 10.0, 0),
    ]
    words = spoken(failure_claim(found))
    assert (
        "Shard them" in words and "20.0 GiB of parameters, 40.0 GiB of optimizer state and 10.0 GiB" in words
    )
    assert "train.py:9 asked for 4.0 GiB of GPU 0 in the optimizer" in words


def test_an_exception_that_another_was_raised_from_counts() -> None:
    try:
        try:
            raise said_by_torch()
        except RuntimeError as inner:
            raise ValueError("the step failed") from inner
    except ValueError as outer:
        found = failed(outer)
    assert found.asked_gib == 4.0 and (found.line or "").startswith("tests/agent/test_out_of_memory.py:")


def test_the_phase_is_told_by_the_frames() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.register_forward_pre_hook(lambda *_: torch.empty(1 << 50))
    with pytest.raises(RuntimeError) as raised:
        model(torch.zeros(1, 2))
    found = failed_request(raised.value, torch, None)
    assert found is not None and found.phase == "forward" and found.on_host
    assert found.kinds[0].kind == "parameters" and found.cause == "size"


class Tower(torch.nn.Module):
    def __init__(self, at: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(8))
        self.layers[at].register_forward_pre_hook(lambda *_: torch.empty(1 << 50))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class AsksInWorker(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: int) -> torch.Tensor:
        return asks()


def test_a_worker_that_fails_is_told_by_its_own_line() -> None:
    with pytest.raises(RuntimeError) as raised:
        next(iter(torch.utils.data.DataLoader(AsksInWorker(), num_workers=1)))
    found = failed_request(raised.value, torch, None)
    assert found is not None and found.of_training is False
    assert found.line == f"tests/agent/test_out_of_memory.py:{asks.__code__.co_firstlineno + 1}"
    words = spoken(failure_claim(found))
    assert "The job held" not in words and f"{found.line} asked for" in words


def of_training(called: Callable[[], object]) -> bool | None:
    with pytest.raises(RuntimeError) as raised:
        called()
    found = failed_request(raised.value, torch, None)
    assert found is not None
    words = spoken(failure_claim(replace(found, cause="limit", limit_gib=1.0)))
    assert ("make the batch smaller" in words) is (found.of_training is not False)
    return found.of_training


def asks(*_: object) -> torch.Tensor:
    return torch.empty(1 << 50)


def test_a_request_in_no_training_step_is_told_apart() -> None:
    model, x = Tower(4), torch.zeros(1, 2)
    assert of_training(lambda: model(x)) and of_training(lambda: Tower(0)(x))
    assert of_training(lambda: torch.nn.functional.interpolate(model.layers[0](x)[None], 1 << 46))
    with torch.no_grad():
        assert of_training(lambda: model(x)) is False
    assert of_training(lambda: torch.no_grad()(Tower(0))(x)) is False
    assert of_training(lambda: Tower(0).eval()(x)) is False
    assert of_training(asks) is False
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.register_hook(asks)
    assert of_training((weight * 2).sum().backward)


def test_how_far_the_forward_pass_came_and_what_it_trains() -> None:
    model = Tower(6)
    with pytest.raises(RuntimeError) as raised:
        model(torch.zeros(1, 2))
    adam = torch.optim.AdamW(model.parameters(), amsgrad=True)
    sgd = torch.optim.SGD(torch.nn.Linear(3, 3, bias=False).parameters(), momentum=0.9)
    found = failed_model(raised.value, torch, -1, [adam, adam, sgd])
    assert found.forward == (6 / 8, 7 / 8)
    assert found.weights == [(8, 8), (16, 8), (36, 1)]
    assert found.state_times == pytest.approx((3 * 192 + 36) / 228) and found.passing == 2 * 16
    assert failed_model(raised.value, torch, 0, [adam]).weights == []


def test_a_single_module_tells_no_share() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.nn.Sequential(Tower(0))(torch.zeros(1, 2))
    assert forward_share(raised.value, torch) == (0.0, 1 / 8)
    assert forward_share(ValueError("no traceback"), torch) is None


# -- the observer ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(oom_observer, "_attached", [])
    yield
    forget_failures()


def test_failures_are_counted_with_the_line_of_the_largest() -> None:
    cuda = FakeCuda(num_ooms=3)
    seen = watch_failures(cuda.torch)
    assert seen is not None and watch_failures(cuda.torch) is not None and len(cuda.observers) == 1
    seen = watch_failures(cuda.torch)
    for asked in (3 * GIB, 9 * GIB, GIB):
        cuda.observers[0](0, asked, 80 * GIB, GIB)
    found = caught_failures(cuda.torch, 0, seen, ended_by_one=False)
    assert found is not None and (found.count, found.largest_gib) == (3, 9.0)
    assert (found.line or "").startswith("tests/agent/test_out_of_memory.py:")
    assert "after 3 requests for memory that failed, the largest of 9.0 GiB at tests" in spoken(
        caught_claim(found)
    )


def test_without_an_observer_the_allocators_own_count_is_told() -> None:
    cuda = FakeCuda(num_ooms=3)
    assert caught_failures(cuda.torch, 0, None, ended_by_one=True) == CaughtFailures(2)
    assert caught_failures(FakeCuda(num_ooms=1).torch, 0, None, ended_by_one=True) is None
    assert caught_failures(cuda.torch, None, None, ended_by_one=False) is None


def test_the_observer_raises_nothing_and_is_deaf_once_the_job_has_ended() -> None:
    cuda = FakeCuda()

    def fails(device: Any = None) -> None:
        raise RuntimeError("the device is lost")

    cuda.torch.cuda.memory_stats = fails
    seen = watch_failures(cuda.torch)
    assert seen is not None
    cuda.observers[0](0, GIB, 80 * GIB, 0)
    assert seen.count == 1 and seen.last is not None and seen.last.stats == {}
    forget_failures()
    cuda.observers[0](0, GIB, 80 * GIB, 0)
    assert seen.count == 1
    assert any(put.by == oom_observer.BY and put.past_end for put in REGISTRY.puts)


def test_the_observers_figures_are_those_of_the_moment() -> None:
    cuda = FakeCuda(**{"allocated_bytes.all.current": 70 * GIB, "reserved_bytes.all.current": 72 * GIB})
    seen = watch_failures(cuda.torch)
    cuda.observers[0](1, 4 * GIB + 512, 80 * GIB, GIB)
    cuda.stats = {"allocated_bytes.all.current": GIB}
    found = failed(RuntimeError("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 1"), seen)
    assert found.asked_gib == (4 * GIB + 512) / GIB and found.held_gib == 70.0 and found.free_gib == 2.0


@pytest.mark.parametrize(
    "text", ["CUDA error: out of memory", "CUDA out of memory. Tried to allocate 6.00 GiB"]
)
def test_a_request_that_failed_before_is_not_the_one_that_ended_the_job(text: str) -> None:
    cuda = FakeCuda()
    seen = watch_failures(cuda.torch)
    cuda.observers[0](1, 4 * GIB, 80 * GIB, GIB)  # the job lived on
    assert failed(RuntimeError(text), seen).asked_gib in (None, 6.0)


def test_the_last_is_not_told_as_one_that_the_job_lived_on_after() -> None:
    cuda = FakeCuda(num_ooms=3)
    seen = watch_failures(cuda.torch)
    for asked in (GIB, 3 * GIB, 9 * GIB):
        cuda.observers[0](0, asked, 80 * GIB, GIB)
    found = caught_failures(cuda.torch, 0, seen, ended_by_one=True)
    assert found is not None and (found.count, found.largest_gib) == (2, 3.0)


def test_a_limit_that_torch_does_not_name_is_known_from_the_observer() -> None:
    cuda = FakeCuda(**{"allocated_bytes.all.current": 38 * GIB, "reserved_bytes.all.current": 38 * GIB})
    seen = watch_failures(cuda.torch)
    cuda.observers[0](1, 4 * GIB, 40 * GIB, 40 * GIB)
    stats = {"allocated_bytes.all.current": 38 * GIB, "reserved_bytes.all.current": 38 * GIB}
    found = failed(RuntimeError("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 1"), seen, **stats)
    assert found.cause == "limit" and found.limit_gib == 40.0


def test_a_library_that_gets_no_memory_is_out_of_memory_too() -> None:
    said = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    assert failure_text(RuntimeError(said)) == FailureText(False)
    assert failure_text(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")) is None


def test_an_allocator_that_tells_nobody_is_left_alone() -> None:
    cuda = FakeCuda()

    def refuses(observer: Any) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver")

    cuda.torch._C._cuda_attach_out_of_memory_observer = refuses
    assert watch_failures(cuda.torch) is None


def test_a_torch_without_an_observer_is_left_alone() -> None:
    cuda = FakeCuda()
    del cuda.torch._C._cuda_attach_out_of_memory_observer
    assert watch_failures(cuda.torch) is None
    assert watch_failures(SimpleNamespace(_C=SimpleNamespace())) is None


@pytest.mark.parametrize(
    ("left", "limit", "cause", "says"),
    [
        (GIB, None, "size", "Only 1.0 GiB of"),
        (GIB, 50 * GIB, "size", "Only 1.0 GiB of"),
        (
            90 * GIB,
            50 * GIB,
            "limit",
            "90.0 GiB was free: the limit of this process stopped it, 50.0 GiB of address space.",
        ),
        (90 * GIB, None, "unknown", "is unknown: 90.0 GiB was free when the job ended."),
    ],
)
def test_the_host_refuses_less_than_it_has_only_by_a_limit(
    left: int, limit: int | None, cause: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_requests, "unlimited_memory", lambda: left)
    monkeypatch.setattr(failed_requests, "own_limits", lambda: (limit, 5))
    found = failed(MemoryError("Unable to allocate 4.00 GiB for an array"))
    words = spoken(failure_claim(found))
    assert found.cause == cause and says in words and ("`ulimit -v`" in words) == (cause == "limit")


# -- whole jobs --------------------------------------------------------------------------------------------

DIES = """
    def one_step():
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        return torch.empty(1 << 50)

    if {steps}:
        train({steps})
    print("trained", flush=True)
    one_step()
"""


@pytest.mark.parametrize("steps", [0, 3])
def test_a_job_that_dies_ends_as_it_would(warm_jobs: running.Jobs, training: Any, steps: int) -> None:
    warm_jobs.write(training(DIES.format(steps=steps)))
    plain = warm_jobs.plain_warm("job.py")
    measured = warm_jobs.run(None, options=("--wait", "2", "--steps", "6", "--memory"))
    assert (measured.code, measured.stdout) == (plain.code, plain.stdout) and plain.code == 1
    assert measured.stderr.startswith(plain.stderr)
    after = measured.stderr.removeprefix(plain.stderr).splitlines()
    assert all(line.startswith("findwall: ") for line in after)
    assert "job.py:20 asked for 4,194,304.0 GiB of the host's memory" in after[0]
    assert "compute it in parts" in measured.stderr
    oom = measured.measurement().oom
    assert oom is not None and oom.cause == "size" and oom.kinds[0].kind == "parameters"
    if not steps:
        read = warm_jobs.plain_warm("-m", "findwall", "read", "run")
        assert read.code == 0 and "OUT OF MEMORY" in read.stdout and "job.py:20" in read.stdout


def test_a_limit_of_the_process_leaves_room_for_what_is_said(warm_jobs: running.Jobs, training: Any) -> None:
    """Small blocks until nothing is left, not even for a list of what is alive."""
    source = """
        import resource
        train(3)
        with open("/proc/self/status") as file:
            held = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))
        resource.setrlimit(resource.RLIMIT_DATA, (held + (64 << 20), held + (64 << 20)))
        kept = []
        while True:
            kept.append(torch.ones(1 << 14))
    """
    warm_jobs.write(training(source))
    done = warm_jobs.run(None, options=("--wait", "2", "--steps", "6"))
    oom = done.measurement().oom
    assert done.code == 1 and oom is not None and oom.cause == "limit", done.stderr
    assert oom.kinds[0].kind == "parameters" and "the limit of this process stopped it" in done.stderr


def test_a_job_that_lives_on_is_left_alone(warm_jobs: running.Jobs, training: Any) -> None:
    source = """
        try:
            torch.empty(1 << 50)
        except RuntimeError as error:
            print(error)
        print(float(train(40).detach()))
    """
    warm_jobs.write(training(source))
    plain = warm_jobs.plain_warm("job.py")
    measured = warm_jobs.run(None, options=("--wait", "2", "--steps", "6", "--memory"))
    assert (measured.code, measured.stdout) == (0, plain.stdout)
    assert "Out of memory" not in measured.stderr and measured.measurement().oom is None


def test_a_loop_that_dies_is_told_too(warm_jobs: running.Jobs, training: Any) -> None:
    source = """
        import findwall
        with findwall.measure(memory=True, verdict=False, out="run") as m:
            train(3)
            torch.empty(1 << 50)
    """
    warm_jobs.write(training(source))
    done = warm_jobs.plain_warm("job.py")
    assert done.code == 1 and "asked for 4,194,304.0 GiB" in done.stderr
    assert done.stderr.count("DefaultCPUAllocator") == 1 and "stopped measuring" not in done.stderr
