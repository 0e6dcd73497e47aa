"""What is asked and recorded of a job's memory: totals, the allocator's history, what lies where."""

from __future__ import annotations

import gc
import resource
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fake_cuda import FakeCuda
from findwall.agent.allocations import known_addresses as known_addresses_module
from findwall.agent.allocations import memory_recording
from findwall.agent.allocations.first_steps import FirstSteps
from findwall.agent.allocations.known_addresses import HOST, known_addresses
from findwall.agent.allocations.live_tensors import objects_of
from findwall.agent.allocations.memory_recording import STEPS, RecordingMemory
from findwall.agent.allocations.memory_totals import MOST_LOOKS, PERIOD_NS, Totals
from findwall.agent.allocations.memory_watch import MemoryWatch
from findwall.apply.registry import REGISTRY
from findwall.examine import examine as read_document
from findwall.machine.host_memory import PAGE_BYTES, available_memory, host_limit, own_limits, resident
from findwall.model.machine import Holding
from findwall.model.measurement import KnownAddresses, Measurement
from findwall.readers import open_run
from findwall.readers.known_memory import read_known_memory
from memory_samples import MIB, build, train_step

torch = pytest.importorskip("torch")


# -- totals ------------------------------------------------------------------------------------------------


def stats(allocated: int, reserved: int, peak: int) -> dict[str, int]:
    return {
        "allocated_bytes.all.current": allocated,
        "reserved_bytes.all.current": reserved,
        "allocated_bytes.all.peak": peak,
    }


def test_the_allocator_is_asked_at_most_once_a_second_but_for_early_steps() -> None:
    cuda, totals = FakeCuda(**stats(3, 5, 9)), Totals()
    for step in range(100):
        totals.look(cuda.torch, 0, step, step * PERIOD_NS // 10)
    assert cuda.asked == 10 + len((2, 4, 8, 16, 32, 64))
    assert totals.columns.step == list(range(0, 100, 10)) and set(totals.columns.reserved) == {5}


def test_the_peak_is_the_highest_seen_though_the_job_makes_torch_forget_it() -> None:
    cuda, totals = FakeCuda(), Totals()
    for step, peak in enumerate((7, 40, 3)):
        cuda.stats = stats(2, 8, peak)
        totals.look(cuda.torch, 0, step, step * PERIOD_NS)
    assert totals.told(cuda.torch, 0).peak == 40
    assert totals.columns.limit == cuda.total


def test_a_long_run_is_looked_at_ever_more_seldom() -> None:
    cuda, totals = FakeCuda(**stats(1, 1, 1)), Totals()
    for step in range(5 * MOST_LOOKS):
        totals.look(cuda.torch, 0, step, step * PERIOD_NS)
    looked = totals.columns.step
    assert len(looked) <= MOST_LOOKS and looked[0] == 0 and looked[-1] >= 5 * MOST_LOOKS - 8
    assert len({after - before for before, after in pairwise(looked)}) == 1


def test_what_was_seen_before_the_job_came_to_its_device_is_left_out() -> None:
    cuda, totals = FakeCuda(**stats(3, 5, 9)), Totals()
    totals.look(cuda.torch, None, 0, 0)
    totals.look(cuda.torch, 0, 1, PERIOD_NS)
    assert totals.columns.allocated == [3] and totals.columns.peak == 9


def test_an_allocator_of_the_jobs_own_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    cuda, totals = FakeCuda(**stats(3, 5, 9)), Totals()
    totals.look(cuda.torch, 0, 0, 0)
    assert totals.told(cuda.torch, 0).step == [] and cuda.asked == 0


def test_an_allocator_that_fails_is_asked_no_more() -> None:
    cuda, totals = FakeCuda(), Totals()
    asked: list[int] = []

    def fails(device: Any = None) -> None:
        asked.append(1)
        raise RuntimeError("an allocator of somebody's own")

    cuda.torch.cuda.memory_stats = fails
    for step in range(3):
        totals.look(cuda.torch, 0, step, step * PERIOD_NS)
    assert asked == [1] and totals.told(cuda.torch, 0).step == []


def machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_on_a_cpu_what_is_resident_of_the_jobs_own_counts(tmp_path: Path) -> None:
    host = machine(
        tmp_path, proc__self__statm="900 500 100 1 0 300 0\n", proc__meminfo="MemAvailable: 64 kB\n"
    )
    own = 400 * PAGE_BYTES
    assert resident(tmp_path) == Holding(own, own, own)
    assert host_limit(host) == own + 65536
    assert resident() is not None and resident(tmp_path / "nowhere") is None


def test_a_container_may_leave_less_than_the_machine(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        proc__self__statm="900 500 100 1 0 300 0\n",
        proc__meminfo="MemTotal: 1 kB\nMemAvailable: 64 kB\n",
        proc__self__cgroup="0::/job\n",
    )
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("50000\n")
    (group / "memory.current").write_text("49000\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 1000\n")  # which it gives back
    assert host_limit(host) == 400 * PAGE_BYTES + 2000
    (group / "memory.max").write_text("max\n")
    assert host_limit(host) == 400 * PAGE_BYTES + 65536
    (tmp_path / "proc/self/cgroup").write_text("5:cpu,memory:/not/seen/here\n4:cpu:/\n")
    old = tmp_path / "sys/fs/cgroup/memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("5000\n")
    (old / "memory.usage_in_bytes").write_text("0\n")
    assert available_memory(tmp_path) == 5000
    (tmp_path / "proc/self/cgroup").unlink()
    assert available_memory(tmp_path) == 65536


def test_a_limit_of_the_process_may_leave_less_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_DATA: 9000, resource.RLIMIT_AS: 50_000}
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limits[what], limits[what]))
    root = machine(
        tmp_path,
        proc__meminfo="MemAvailable: 64 kB\n",
        proc__self__status="VmSize:\t 10 kB\nVmData:\t 8 kB\n",
    )
    assert (own_limits(root), available_memory(root)) == ((9000, 9000 - 8192), 9000 - 8192)
    limits[resource.RLIMIT_DATA] = resource.RLIM_INFINITY
    assert own_limits(root) == (50_000, 50_000 - 10_240)
    limits[resource.RLIMIT_AS] = resource.RLIM_INFINITY
    assert own_limits(root) == (None, None) and available_memory(root) == 65536


# -- the recording -----------------------------------------------------------------------------------------


class FakeEngine:
    """What the stage asks of its engine."""

    def __init__(self, cuda: FakeCuda, folder: Path, speaks: bool = True) -> None:
        self.torch, self.record = cuda.torch, Measurement()
        self.torch.nn, self.torch.optim = torch.nn, torch.optim
        self.torch.Tensor, self.torch.strided = torch.Tensor, torch.strided
        self.folder = SimpleNamespace(rank_path=folder / "rank0")
        self.rank = SimpleNamespace(speaks=speaks)
        self.diary = SimpleNamespace(held_up=0)
        self.notes: list[str] = []
        self.done: list[bool] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def recorded(self, steps: int = STEPS) -> RecordingMemory:
        stage: Any = RecordingMemory(self, lambda engine: self.done.append(True))  # type: ignore[arg-type]
        for _ in range(steps):
            if not self.done:
                stage.step(self, 0)
        return stage


def trained_by(cuda: FakeCuda, engine: FakeEngine, steps: int = STEPS) -> None:
    build(cuda.job)
    stage: Any = RecordingMemory(engine, lambda _: engine.done.append(True))  # type: ignore[arg-type]
    for _ in range(steps):
        train_step(cuda.job)
        stage.step(engine, 0)


def test_a_few_steps_are_recorded_and_read_back(tmp_path: Path) -> None:
    cuda = FakeCuda()
    engine = FakeEngine(cuda, tmp_path)
    trained_by(cuda, engine)
    assert engine.done and engine.record.memory.why_not == "" and engine.notes == []
    assert [one[0] for one in cuda.told] == ["all", None] and cuda.told[0][2] == "all"
    assert not any(put.by == memory_recording.BY for put in REGISTRY.puts)
    path = engine.folder.rank_path / (engine.record.memory.snapshot or "")
    assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
    memory: Any = open_run([path]).memory  # type: ignore[attr-defined]
    assert len(memory.devices[0].events) == len(cuda.job.events)
    assert sorted(one.name for one in path.parent.iterdir()) == ["known-snapshot.json", path.name]


def test_torch_2_0_is_asked_in_its_own_words(tmp_path: Path) -> None:
    cuda = FakeCuda(legacy=True)
    trained_by(cuda, FakeEngine(cuda, tmp_path))
    assert cuda.told == [(True, memory_recording.MOST_EVENTS, True), (False, 1, False)]


def test_a_job_that_records_keeps_its_history(tmp_path: Path) -> None:
    cuda = FakeCuda()
    engine = FakeEngine(cuda, tmp_path)
    with cuda.job.recording():
        trained_by(cuda, engine, steps=1)
        assert cuda.job.is_recording and cuda.told == []
    assert engine.done and engine.notes == [
        "what peaks in memory was not recorded: the job records its allocations itself"
    ]


@pytest.mark.parametrize(
    ("limit", "value"), [("MOST_BYTES", 100), ("WRITES_AT_MOST_NS", -1)], ids=["size", "time"]
)
def test_what_would_hold_the_job_up_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(memory_recording, limit, value)
    cuda = FakeCuda()
    engine = FakeEngine(cuda, tmp_path)
    trained_by(cuda, engine)
    assert engine.done and "too much to write" in engine.record.memory.why_not
    assert engine.record.memory.snapshot is None and list(engine.folder.rank_path.iterdir()) == []
    assert not cuda.job.is_recording


def test_an_allocator_that_fails_ends_the_recording_alone(tmp_path: Path) -> None:
    cuda = FakeCuda()
    engine = FakeEngine(cuda, tmp_path)

    def fails(device: Any = None) -> None:
        raise RuntimeError("torch was built otherwise")

    cuda.torch.cuda.memory._snapshot = fails
    trained_by(cuda, engine)
    assert engine.done and engine.record.memory.why_not == "torch was built otherwise"
    assert not cuda.job.is_recording


def test_a_job_that_ends_while_it_is_recorded_leaves_what_there_is(tmp_path: Path) -> None:
    cuda = FakeCuda()
    engine = FakeEngine(cuda, tmp_path)
    build(cuda.job)
    stage: Any = RecordingMemory(engine, lambda _: None)  # type: ignore[arg-type]
    train_step(cuda.job)
    stage.close(engine)
    assert not cuda.job.is_recording and engine.record.memory.snapshot is not None


def test_other_ranks_and_unknown_versions_record_nothing(tmp_path: Path) -> None:
    cuda = FakeCuda()
    other = FakeEngine(cuda, tmp_path, speaks=False)
    other.recorded(1)
    del cuda.torch._C._cuda_isHistoryEnabled
    unknown = FakeEngine(cuda, tmp_path)
    unknown.recorded(1)
    assert cuda.told == [] and other.done and unknown.done
    assert "does not say" in unknown.record.memory.why_not


# -- what lies where ---------------------------------------------------------------------------------------


def test_parameters_gradients_and_state_are_known_by_their_storages(tmp_path: Path) -> None:
    model = torch.nn.Linear(64, 32)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    found = known_addresses(torch)
    here = {row[1]: row for row in (*found.parameters, *found.gradients, *found.optimizer_state)}
    weight = model.weight
    assert (HOST, weight.data_ptr(), weight.numel() * 4) in found.parameters
    assert weight.grad is not None and here[weight.grad.data_ptr()] in found.gradients
    moment = optimizer.state[weight]["exp_avg"]
    assert here[moment.data_ptr()] == (HOST, moment.data_ptr(), weight.numel() * 4)
    path = tmp_path / "known-trace.json"
    path.write_bytes(msgspec.json.encode(found))
    read = read_known_memory(path)
    assert len(read) == len(found.parameters) + len(found.gradients) + len(found.optimizer_state)
    assert len(read.on(HOST)) == len(read) and len(read.on(0)) == 0


class OwnOptimizer(torch.optim.SGD):
    """One of the job's own, which may keep its state anywhere."""


@pytest.mark.parametrize(
    ("made", "tells_all"),
    [
        (lambda weights: torch.optim.SGD(weights, lr=0.1), True),
        (lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9), True),
        (torch.optim.AdamW, True),
        (torch.optim.LBFGS, False),  # in lists
        (lambda weights: OwnOptimizer(weights, lr=0.1), False),
        (lambda weights: OwnOptimizer(weights, lr=0.1, momentum=0.9), True),
    ],
)
def test_an_optimizer_that_is_seen_whole_tells_all_state(
    made: Any, tells_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = made(model.parameters())

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = model(torch.ones(2, 8)).sum()
        found.backward()
        return found

    optimizer.step(loss)
    monkeypatch.setattr(known_addresses_module, "objects_of", lambda *_, **__: [model, optimizer])
    assert known_addresses(torch).tells_all_state is tells_all
    monkeypatch.setattr(known_addresses_module, "objects_of", lambda *_, **__: [model])
    assert not known_addresses(torch).tells_all_state


def test_views_of_one_storage_are_one_row() -> None:
    flat = torch.nn.Parameter(torch.zeros(2 * MIB))
    model = torch.nn.Module()
    model.flat, model.part = flat, torch.nn.Parameter(flat.detach()[:100])
    found = known_addresses(torch)
    assert [row for row in found.parameters if row[1] == flat.data_ptr()] == [
        (HOST, flat.data_ptr(), 8 * MIB)
    ]


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"parameters":[[0,1]]}', '{"gradients":[[0,-1,5]]}', '{"parameters":[[0,1,-5]]}', "{" * 9999],
)
def test_damaged_addresses_are_refused(tmp_path: Path, content: str) -> None:
    from findwall.errors import InputError

    path = tmp_path / "known-trace.json"
    path.write_text(content)
    with pytest.raises(InputError):
        read_known_memory(path)


def test_nothing_known_is_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "known-trace.json"
    path.write_bytes(msgspec.json.encode(KnownAddresses()))
    assert len(read_known_memory(path).on(0)) == 0


# -- the first steps ---------------------------------------------------------------------------------------


class Starting:
    """A job before CUDA is up."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.cuda = FakeCuda(**options)
        self.queued: list[Any] = []
        self.cuda.torch.cuda._queued_calls = self.queued
        self.cuda.torch.cuda._lazy_call = lambda call: self.queued.append((call, []))
        monkeypatch.setattr("findwall.machine.torch_device.may_use_gpu", lambda torch: True)
        self.engine: Any = SimpleNamespace(
            torch=self.cuda.torch,
            options=SimpleNamespace(memory=True),
            rank=SimpleNamespace(speaks=True),
            folder=SimpleNamespace(rank_path=path),
            record=Measurement(phase="warm-up"),
            memory=MemoryWatch(self.cuda.torch),
            done=False,
            note=lambda text: None,
        )
        self.first = FirstSteps(self.engine)

    def comes_up(self) -> None:
        for call, _ in [*self.queued]:
            call()


def test_a_request_that_fails_in_the_first_steps_leaves_their_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Starting(tmp_path, monkeypatch)
    assert not job.cuda.told and len(job.queued) == 1  # nobody asked CUDA to be up
    job.comes_up()
    assert job.cuda.told == [("all", "all", "python", 20_000)] and len(job.cuda.observers) == 1
    build(job.cuda.job)
    train_step(job.cuda.job)
    job.cuda.job.alloc("last", 64 * MIB)
    job.cuda.job.fail(90 * MIB, left=MIB)
    job.first.keep()
    assert job.engine.record.memory.snapshot == "snapshot.pickle.gz" and job.cuda.told[-1][0] is None
    found = read_document(open_run([tmp_path / "snapshot.pickle.gz"]))
    assert found.memory.oom is not None and found.memory.lines[0].line == "model.py:10"
    assert not job.queued


def test_the_history_of_the_first_steps_ends_with_the_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Starting(tmp_path, monkeypatch)
    job.comes_up()
    job.first.end()
    job.first.end()
    job.first.keep()
    assert [one[0] for one in job.cuda.told] == ["all", None] and not list(tmp_path.iterdir())


def test_cuda_that_comes_up_late_or_cannot_be_recorded_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Starting(tmp_path, monkeypatch)
    late.engine.record.phase = "timing"
    late.comes_up()
    assert not late.cuda.told
    late.first.end()
    assert late.queued == []
    own = Starting(tmp_path, monkeypatch)
    own.cuda.job.is_recording = True  # the job's own
    own.comes_up()
    own.first.end()
    assert not own.cuda.told and own.cuda.job.is_recording


def test_a_job_that_begins_to_record_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Starting(tmp_path, monkeypatch)
    job.comes_up()
    own = job.cuda.torch.cuda.memory
    own._record_memory_history("all", max_entries=7)
    assert [one[0] for one in job.cuda.told] == ["all", None, "all"] and job.cuda.told[-1][-1] == 7
    job.first.end()
    job.first.keep()
    assert job.cuda.job.is_recording and not list(tmp_path.iterdir())
    own._record_memory_history(None)
    assert len(job.cuda.told) == 4 and not job.cuda.job.is_recording


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


def test_what_is_frozen_is_found_by_the_job_s_variables() -> None:
    """gc.freeze(), which findwall itself advises, hides all there is from the collector."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    holders = [{"optimizer": Holder(torch.optim.SGD(model.parameters(), lr=0.1))}]
    gc.freeze()
    try:
        later = torch.nn.Linear(1, 1)
        found = objects_of(torch.nn.Module, torch.optim.Optimizer)
    finally:
        gc.unfreeze()
    ids = [id(one) for one in found]
    assert {id(one) for one in (model, model[0], later, holders[0]["optimizer"].held)} <= set(ids)
    assert len(ids) == len(set(ids))
