"""Fixes of the host's side, made in a job's own process: each took effect on a real toy job."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import warm
from findwall.apply.applying import Effect
from findwall.fixes.loader.live_loaders import show_first_batch
from findwall.fixes.loader.pinned_copies import PinnedCopies

torch = pytest.importorskip("torch")
_spec = importlib.util.spec_from_file_location("applying", Path(__file__).with_name("test_applying.py"))
assert _spec is not None and _spec.loader is not None
_applying = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_applying)
run = _applying.run

ROWS = """
import gc
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Rows(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        info = get_worker_info()
        return index, -1 if info is None else info.id, os.getpid()
"""
TRAIN = (
    ROWS
    + """
collect = gc.collect
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(1, 1)
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
loader = DataLoader(Rows(), 2, shuffle=True, num_workers=0)
evaluation = DataLoader(Rows(), 6)
order, processes = [], []
for epoch in range(3):
    for index, worker, process in loader:
        order += index.tolist()
        optimizer.zero_grad()
        model(index[:, None].float()).sum().backward()
        optimizer.step()
        if epoch == 0:
            gc.collect()
    processes.append(tuple(sorted(set(process.tolist()))))
    with torch.no_grad():
        for index, *_ in evaluation:
            model(index[:, None].float())
print("order", order)
print("drawn after", torch.rand(2).tolist())
print("worker", worker.max().item() >= 0, "kept", processes[0] == processes[-1])
print("evaluation", evaluation.num_workers, evaluation.persistent_workers)
print("foreach", optimizer.param_groups[0]["foreach"])
print("collector", gc.get_threshold()[0] < 10_000, gc.get_freeze_count() > 0, gc.collect is collect)
print("threads", torch.get_num_threads())
"""
)
PASSES = (
    ROWS
    + """
torch.manual_seed(0)
order, processes = [], set()
loader = DataLoader(Rows(), 2, shuffle=True, num_workers=2)
for epoch in range(3):
    for index, worker, process in loader:
        order += index.tolist()
        processes |= set(process.tolist())
print("order", order)
print("drawn after", torch.rand(2).tolist())
print("processes", len(processes))
"""
)


def lines(said: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What the job prints of itself without findwall."""
    script = tmp_path_factory.mktemp("plain") / "job.py"
    script.write_text(TRAIN + "print('---')" + PASSES)
    done = subprocess.run(warm.command(str(script)), capture_output=True, text=True, check=True)
    train, passes = done.stdout.split("---")
    return {"train": lines(train), "passes": lines(passes)}


def test_without_fixes_nothing_of_them_is_there(plain: dict[str, dict[str, str]]) -> None:
    told = plain["train"]
    assert told["worker"] == "False kept True" and told["foreach"] == "None"
    assert told["collector"] == "True False True" and told["threads"] == "1"
    assert plain["passes"]["processes"] == "6"


def test_samples_keep_their_order_with_workers(tmp_path: Path, plain: dict[str, dict[str, str]]) -> None:
    """In every epoch, and whatever is drawn at random after them is the same."""
    names = "persistent-workers,loader-workers=2,foreach-optimizer,freeze-gc,more-threads"
    found, said = run(tmp_path, names, TRAIN)
    told = lines(said)
    assert told["order"] == plain["train"]["order"] and told["drawn"] == plain["train"]["drawn"]
    assert found["loader-workers"] == {"seen": "2 workers in a loader of 6 batches", "trouble": ""}
    assert found["persistent-workers"]["seen"] == "the same 2 workers in a loader's second pass"
    assert told["worker"] == "True kept True" and told["evaluation"] == "0 False"
    assert found["foreach-optimizer"] == {"seen": "foreach=True in NAdam", "trouble": ""}
    assert told["foreach"] == "True"
    # Of the first epoch's six collections, the third step's is the first one skipped.
    assert found["freeze-gc"]["seen"].endswith("objects; skipped 4 of the job's own collections")
    assert told["collector"] == "False True False"
    threads = int(told["threads"])
    if threads > 1:
        expected = f"{threads} threads in torch's ops, where there would be 1"
        assert found["more-threads"] == {"seen": expected, "trouble": ""}


def test_workers_are_kept_with_the_same_order(tmp_path: Path, plain: dict[str, dict[str, str]]) -> None:
    found, said = run(tmp_path, "persistent-workers", PASSES)
    told = lines(said)
    assert found["persistent-workers"]["seen"] == "the same 2 workers in a loader's second pass"
    assert told["processes"] == "2"
    assert told["order"] == plain["passes"]["order"] and told["drawn"] == plain["passes"]["drawn"]


MODES = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
norm = nn.BatchNorm1d(1)
model = nn.Sequential(nn.Linear(1, 1), norm, nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def rows():
    return [torch.tensor([float(row)]) for row in range(8)]

def step(x, of=model, by=optimizer):
    by.zero_grad()
    of(x).sum().backward()
    by.step()

def trained(loader, before=lambda: None):
    for x in loader:
        before()
        step(x)
    return loader.num_workers

def evaluated(loader):
    for x in loader:
        with torch.no_grad():
            model(x)
    return loader.num_workers

def loader(data=None):
    return DataLoader(data or rows(), 4)
"""
EVALUATES = [
    # As most jobs do it, and as a job that never says so.
    (
        "a, b = loader(), loader()",
        "trained(a)",
        "model.eval()",
        "evaluated(b)",
        "model.train()",
        "trained(a)",
    ),
    ("a, b = loader(), loader()", "trained(a)", "model.train(False)", "evaluated(b)"),
    ("a, b = loader(), loader()", "trained(a)", "evaluated(b)"),
    # A loader for both is a loader for training, from when that is known.
    (
        "a, b = loader(), loader()",
        "trained(a)",
        "model.eval()",
        "evaluated(b)",
        "model.train()",
        "trained(b)",
    ),
    # Parts of a model, or one of two, in evaluation mode are no evaluation.
    ("", "trained(loader())", "norm.eval()", "trained(loader())"),
    (
        "other = nn.Linear(1, 1); its = torch.optim.SGD(other.parameters(), lr=1e-3)",
        "trained(loader(), lambda: step(torch.ones(4, 1), other, its))",
        "model.eval()",
        "trained(loader(), lambda: step(torch.ones(4, 1), other, its))",
    ),
    # It trains in evaluation mode.
    ("model.eval()", "trained(loader())", "model.eval()", "trained(loader())"),
    # Training mode begins after the first batch, of a loader that is made for each epoch.
    (
        "model.eval(); data = rows()",
        "trained(loader(data), model.train)",
        "model.eval()",
        "evaluated(loader())",
        "trained(loader(data), model.train)",
    ),
]
CHANGED = ([1, 0, 1], [1, 0], [1, 1], [1, 0, 1], [1, 1], [1, 1], [1, 1], [1, 0, 1])


@pytest.mark.parametrize(("told", "workers"), list(zip(EVALUATES, CHANGED, strict=True)))
def test_what_is_gone_through_in_evaluation_mode_is_left_alone(
    tmp_path: Path, told: tuple[str, ...], workers: list[int]
) -> None:
    """Also where gradients are off only inside the loop."""
    begin, *rest = told
    lines = [f"found.append({one})" if "ed(" in one else one for one in rest]
    job = "\n".join([MODES, begin, "found = []", *lines, "print('workers', found)"])
    _, said = run(tmp_path, "loader-workers=1", job)
    assert said.splitlines()[-1] == f"workers {workers}"


ONE_PASS = """
from torch.utils.data import DataLoader
print("went on", len([batch for batch in DataLoader(list(range(4)))]))
"""


def test_what_has_nothing_to_do_says_so(tmp_path: Path) -> None:
    names = "persistent-workers,omp-threads,broadcast-buffers,bucket-collectives,pin-memory,non-blocking-copy"
    found, said = run(tmp_path, names, ONE_PASS)
    assert not any(one["seen"] for one in found.values())
    assert found["persistent-workers"]["trouble"] == "a loader has no workers to keep"
    assert found["omp-threads"]["trouble"] == "no loader that feeds the steps has workers"
    assert "wraps no model" in found["broadcast-buffers"]["trouble"]
    assert "wraps no model" in found["bucket-collectives"]["trouble"]
    if not torch.cuda.is_available():
        assert all("no GPU" in found[name]["trouble"] for name in ("pin-memory", "non-blocking-copy"))
    assert "went on 4" in said


ODD = """
import os
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

class Endless(Sampler):
    def __iter__(self):
        yield from [3, 1, 2, 0]

class Rows(Dataset):
    def __init__(self):
        self.read = lambda index: index
    def __getitem__(self, index):
        return self.read(index), int(os.environ.get("MINE", 0)), os.environ.get("OMP_NUM_THREADS") == "1"

def begin(worker):
    os.environ["MINE"] = "7"

os.environ.pop("OMP_NUM_THREADS", None)
torch.set_num_threads(len(os.sched_getaffinity(0)) + 1)
for epoch in range(3):
    for batch in DataLoader(Rows(), 2, sampler=Endless(), worker_init_fn=begin):
        print("batch", [part.tolist() for part in batch])
print("threads", torch.get_num_threads())
"""


def test_a_loader_of_another_kind_keeps_what_is_its_own(tmp_path: Path) -> None:
    """No length, no pickling, a sampler and a worker_init_fn of its own, made anew in every epoch."""
    found, said = run(tmp_path, "omp-threads,loader-workers=3", ODD)
    assert found["loader-workers"] == {"seen": "3 workers in a loader", "trouble": ""}
    batches = [line for line in said.splitlines() if line.startswith("batch")]
    assert (
        batches == ["batch [[3, 1], [7, 7], [True, True]]", "batch [[2, 0], [7, 7], [True, True]]"] * 3
    )  # each epoch's workers are of a new loader
    assert "threads in torch's ops, where there would be" in found["omp-threads"]["seen"]


PRODUCTS = """
import ctypes, re
import numpy
from torch.utils.data import DataLoader, get_worker_info

path = re.search(r"/\\S*openblas\\S*[.]so\\S*", open("/proc/self/maps").read())
if path is None:
    raise SystemExit("no OpenBLAS here")
blas = ctypes.CDLL(path.group())
names = ("openblas_{}_num_threads", "scipy_openblas_{}_num_threads64_")
name = next(one for one in names if hasattr(blas, one.format("get")))
getattr(blas, name.format("set"))(3)

class Rows:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        numpy.ones((300, 300)) @ numpy.ones((300, 300))
        return getattr(blas, name.format("get"))()

print("threads", [batch.tolist() for batch in DataLoader(Rows())])
print("after", getattr(blas, name.format("get"))())
"""


def test_libraries_that_are_loaded_have_one_thread_in_each_worker(tmp_path: Path) -> None:
    """A forked worker inherits the number, and reads no variable again. The first batch is left as it is."""
    _, said = run(tmp_path, "loader-workers=2", PRODUCTS)
    assert "no OpenBLAS" in said or ("threads [[3], [1], [1], [1]]" in said and "after 3" in said)


BROKEN = """
import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

def collate(rows):
    if get_worker_info() is not None:
        raise RuntimeError("cannot use the GPU in a forked process")
    return default_collate(rows)

torch.manual_seed(0)
loader = DataLoader(list(range(8)), 2, shuffle=True, collate_fn=collate)
for epoch in range(2):
    print("batches", epoch, [batch.tolist() for batch in loader])
print("after", torch.rand(1).item(), loader.num_workers, loader.persistent_workers)
"""


def test_workers_that_cannot_make_a_batch_are_taken_back(tmp_path: Path) -> None:
    found, said = run(tmp_path, "loader-workers=2,persistent-workers", BROKEN)
    assert found["loader-workers"]["trouble"] == "RuntimeError in a worker that made the first batch"
    command = warm.command(str(tmp_path / "job.py"))
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said == plain.stdout


CALLS = """
import gc
import torch
model = torch.nn.Linear(2, 2)
before = gc.get_threshold()
with torch.no_grad():
    for call in range(164):
        model(torch.ones(1, 2))
        if call >= 63:
            gc.collect()
print("collector", gc.isenabled(), gc.get_threshold()[0] // before[0])
print("left", "watched" in torch.nn.Module.__call__.__qualname__)
"""


def test_a_job_without_optimizer_collects_more_seldom(tmp_path: Path) -> None:
    found, said = run(tmp_path, "freeze-gc", CALLS)
    assert found["freeze-gc"]["seen"].endswith("skipped 99 of the job's own collections")  # of 101
    assert lines(said)["collector"] == "True 50" and lines(said)["left"] == "False"


EVALUATES = """
import gc
import weakref
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

class Batch: ...
first = Batch()
first.own = first
gone = weakref.ref(first)
del first
with torch.no_grad():
    for made in range(1_001_000):
        held = []
        held.append(held)
        if made == 400_000:
            print("early", gone() is None)
print("late", gone() is None)
"""


def test_an_evaluation_collects_its_garbage_too(tmp_path: Path) -> None:
    found, said = run(tmp_path, "freeze-gc", EVALUATES)
    assert found["freeze-gc"]["seen"].startswith("froze ")
    assert lines(said)["early"] == "False" and lines(said)["late"] == "True"


RESUMED = """
import torch

def train():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(6):
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        if step == 2:
            state = optimizer.state_dict()
            state["param_groups"][0].update(fused=None, foreach=None)
            optimizer.load_state_dict(state)
    group = optimizer.param_groups[0]
    print("fused", group["fused"])
    print("foreach", group["foreach"])
    print("loaded", state["param_groups"][0]["fused"], int(optimizer.state[model.weight]["step"]))

train()
"""


@pytest.mark.parametrize("way", ["fused", "foreach"])
def test_an_optimizer_steps_the_same_way_after_a_checkpoint_is_loaded(tmp_path: Path, way: str) -> None:
    found, said = run(tmp_path, f"{way}-optimizer", RESUMED)
    assert found[f"{way}-optimizer"] == {"seen": f"{way}=True in AdamW", "trouble": ""}
    assert lines(said)[way] == "True" and lines(said)["loaded"] == "None 6"


@pytest.mark.parametrize("way", ["fused", "foreach"])
def test_an_optimizer_that_loses_its_way_is_said_to(tmp_path: Path, way: str) -> None:
    taken_out = "optimizer.param_groups[0].update(fused=None, foreach=None)"
    found, _ = run(
        tmp_path, f"{way}-optimizer", RESUMED.replace("optimizer.load_state_dict(state)", taken_out)
    )
    assert found[f"{way}-optimizer"]["seen"] == ""
    assert f"AdamW stepped without {way}=True at last" in found[f"{way}-optimizer"]["trouble"]


PARALLEL = """
import os
import torch
from torch import nn
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(600, 600), nn.BatchNorm1d(600)))
model(torch.randn(4, 600)).sum().backward()
print("sends", model.will_sync_module_buffers(), "cap", model.bucket_bytes_cap >> 20)
torch.distributed.destroy_process_group()
"""


def test_data_parallel_gets_its_arguments(tmp_path: Path) -> None:
    found, said = run(tmp_path, "broadcast-buffers,bucket-collectives", PARALLEL)
    assert found["broadcast-buffers"] == {
        "seen": "3 buffers are not sent before a forward pass",
        "trouble": "",
    }
    assert found["bucket-collectives"]["seen"].startswith("buckets of 100 MB for 1.4")
    assert lines(said)["sends"] == "False cap 100"


class Tensor:
    """A stand-in: pinned memory needs a GPU."""

    def __init__(self, pinned: bool, on_gpu: bool = False) -> None:
        self.is_cuda, self._pinned, self.asked = on_gpu, pinned, ()

    def is_pinned(self) -> bool:
        return self._pinned

    def to(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def cuda(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


@pytest.fixture
def copies() -> Any:
    kind = type("Kind", (Tensor,), {})
    return kind, PinnedCopies(SimpleNamespace(Tensor=kind, device=torch.device))


def test_copies_of_pinned_tensors_do_not_block(copies: Any) -> None:
    kind, counted = copies
    pinned, wait = kind(pinned=True), {"non_blocking": True}
    gpu = torch.device("cuda", 0)
    assert pinned.to("cuda") == (("cuda",), wait)
    assert pinned.to(gpu, torch.half) == ((gpu, torch.half), wait)
    assert pinned.to(gpu, torch.half, False) == ((gpu, torch.half, True), {})
    assert pinned.to(device=gpu, non_blocking=False) == ((), {"device": gpu, **wait})
    there = kind(pinned=False, on_gpu=True)
    assert pinned.to(there, False) == ((there, True), {})
    assert pinned.to(0) == ((0,), wait)
    assert pinned.cuda() == ((), wait) and pinned.cuda(0, False) == ((0, True), {})
    assert counted.told() == "8 copies from pinned memory made non-blocking"


def test_other_copies_are_left_alone(copies: Any) -> None:
    kind, counted = copies
    pinned, pageable, there = kind(pinned=True), kind(pinned=False), kind(pinned=False, on_gpu=True)
    for tensor, *args in ((pinned, "cpu"), (pinned, torch.half), (pageable, "cuda"), (there, "cuda")):
        assert tensor.to(*args) == (tuple(args), {})
    assert pinned.to("cuda", non_blocking=True) == (("cuda",), {"non_blocking": True})
    assert pinned.to() == ((), {}) and counted.told() == ""


def test_large_pageable_tensors_are_pinned_on_the_way(copies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, counted = copies
    counted.pins, wait = True, {"non_blocking": True}
    monkeypatch.setattr(counted, "_can_pin", lambda tensor: not tensor.small)
    kind.pin_memory = lambda tensor: kind(pinned=True)
    kind.small = False
    assert kind(pinned=False).to("cuda") == (("cuda",), wait)
    assert kind(pinned=False).to("cuda", non_blocking=True) == (("cuda",), wait)
    kind.small = True
    assert kind(pinned=False).to("cuda") == (("cuda",), {})
    assert counted.told() == "2 copies from pinned memory made non-blocking, 2 of them pinned on the way"


def test_a_batch_is_looked_at_once() -> None:
    loader = torch.utils.data.DataLoader(list(range(4)), 2)
    seen: list[Any] = []
    iterator = iter(loader)
    show_first_batch(iterator, seen.append)
    assert [batch.tolist() for batch in iterator] == [[0, 1], [2, 3]]
    assert len(seen) == 1 and "_next_data" not in vars(iterator)


def test_a_look_that_breaks_is_told_and_not_raised() -> None:
    effect = Effect()
    effect.safely(lambda: [][0])()
    assert "IndexError" in effect.told().trouble


def test_what_was_passed_by_counts_where_nothing_took_effect() -> None:
    effect = Effect()
    effect.missed("one has it already")
    assert effect.told().trouble == "one has it already" and not effect.told().took_effect
    effect.saw("another")
    assert effect.told().took_effect


def test_a_look_at_the_end_tells_what_is_so_then() -> None:
    effect, counted = Effect(), [0]
    effect.at_end(lambda: f"{counted[0]} times")
    counted[0] = 1
    assert effect.told().seen == "1 times"
    counted[0] = 2
    assert effect.told().seen == "2 times"


def test_what_is_freed_is_kept(tmp_path: Path) -> None:
    """Then a tensor of 64 MiB is given no new pages, which are 16,384 by themselves."""
    source = """
import resource
import torch

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(1 << 24).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = pages()
print("pages", first, min(pages() for _ in range(3)))
"""
    found, said = run(tmp_path, "keep-freed-memory", source)
    assert found["keep-freed-memory"] == {"seen": "freed memory is kept (mallopt)", "trouble": ""}
    first, later = map(int, lines(said)["pages"].split())
    assert later < 1_000 < first
