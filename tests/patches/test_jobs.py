"""Patches of real jobs of unlike style: each applies with `git apply`, runs, and does what its fix did."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import warm
from applied_jobs import run
from findwall.apply.live_threads import usable_cores
from findwall.fixes.stack_patch import patch_of
from findwall.model.arms import ArmReport
from findwall.model.patch import Patch

PLAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader as DL, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        seen.add(torch.is_autocast_enabled("cpu"))
        return self.last(x)


seen = set()
data = TensorDataset(torch.randn(240, 16), torch.randn(240, 1))
model = Net()
optimizer = torch.optim.AdamW(
    model.parameters(),
    lr=1e-3,  # small
)
loader = DL(data, 8, shuffle=True)
for x, y in loader:
    # forward
    out = model(x)
    note = '''first
  second'''
    loss = nn.functional.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
print("plain", loader.num_workers, loader.persistent_workers, optimizer.defaults["fused"], *seen)
print("plain", out.dtype, torch.is_autocast_enabled("cpu"), len(note))
"""
PLAIN_DIFF = """\
 optimizer = torch.optim.AdamW(
     model.parameters(),
     lr=1e-3,  # small
+    fused=True,
 )
-loader = DL(data, 8, shuffle=True)
+loader = DL(data, 8, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4)
 for x, y in loader:
     # forward
-    out = model(x)
-    note = '''first
+    with torch.autocast("cpu", dtype=torch.bfloat16):
+        out = model(x).float()
+        note = '''first
   second'''
-    loss = nn.functional.mse_loss(out, y)
+        loss = nn.functional.mse_loss(out, y)
     optimizer.zero_grad()
     loss.backward()
     optimizer.step()
-    torch.cuda.empty_cache()
"""

FUNCTIONS = '''
"""Functions, with the model passed from one to the next."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        return self.last(x)


def make_loader(data, **more):
    return DataLoader(data, **more)


def step(net, batch):
    with torch.profiler.record_function("forward"):
        out = net(batch)
    return out.square().mean()


def train(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        loss = step(model, batch)
        seen.add(loss.dtype)
        loss.backward()
        optimizer.step()


seen = set()


def main():
    options = dict(batch_size=8, num_workers=0)
    loader = make_loader(torch.randn(240, 16), **options)
    if options:
        model = Net()
    model = model.train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.no_grad():
        model(torch.randn(1, 16))
    train(model, loader, optimizer)
    print("functions", loader.num_workers, model._compiled_call_impl is not None, optimizer.defaults["fused"])
    print("functions", *seen)


if __name__ == "__main__":
    main()
'''

CLASS = """
import torch
from torch import nn
class Runner:
	def __init__(self):
		self.model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 1))
		self.model.register_forward_pre_hook(lambda _, given: self.seen.append(given[0].stride()))
		self.seen = []
		self.optimizer = torch.optim.SGD((one for one in self.model.parameters()), 0.1)
	def fit(self, batches):
		for number, x in enumerate(batches):
			self.optimizer.zero_grad(); self.last = number
			self.model(2 * x).mean().backward()
			self.optimizer.step()
if __name__ == "__main__":
	import gc
	runner = Runner()
	runner.fit([torch.randn(5, 3, 8, 8)] * 70)
	weight = next(runner.model.parameters())
	print("class", runner.seen[-1], weight.stride(), runner.optimizer.defaults["fused"], gc.isenabled())"""

ARGUMENTS = """
import argparse

import torch
from torch import nn, optim, utils

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)


def run(args):
    torch.set_num_threads(1)
    model = nn.Linear(16, 1)
    optimizer = optim.NAdam(
        [
            {"params": model.parameters()},
        ],
        lr=1e-3)
    loader = utils.data.DataLoader(
        torch.randn(240, 16),
        8,
        num_workers=args.workers,  # from the command line
        persistent_workers=(args.workers > 0)
    )
    for _ in range(2):
        for x in loader:
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    return loader, optimizer


loader, optimizer = run(parser.parse_args([]))
print("arguments", loader.num_workers, loader.persistent_workers, optimizer.defaults["foreach"])
print("arguments", torch.get_num_threads())
"""

DATA = """
from torch.utils.data import DataLoader


class Fast(DataLoader):
    def __init__(self, data, **more):
        super().__init__(data, 8, False, None, None, 0, **more)
"""
NET = """
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        return self.last(x)


def loss_of(net, x):
    return net(x).mean()
"""
IMPORTED = """
import torch as th
from parts.data import Fast
from parts import net

loader = Fast(th.randn(240, 16))
model = net.Net()
optimizer = th.optim.Adam(model.parameters(), **{"lr": 1e-3, "foreach": True})
for x in loader:
    loss = net.loss_of(model, x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print("imported", loader.num_workers, optimizer.defaults["fused"])
"""

EPOCHS = """
import gc

import torch


def fit(steps):
    for epoch in range(epochs):
        for i, x in enumerate(batches):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            steps.append(i)


def note(phase, info):
    whole.append(phase == "stop" and info["generation"] == 2)


epochs, batches, whole = 40, torch.ones(15, 2, 4), []
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
gc.callbacks.append(note)
for x in batches.repeat(8, 1, 1):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    gc.collect()
first = sum(whole)
fit([])
gc.callbacks.remove(note)
print("epochs", first, sum(whole) - first, gc.isenabled())
"""

JOBS = {
    "plain": (PLAIN, "loader-workers=2,fused-optimizer,bf16-autocast,keep-cache"),
    "functions": (FUNCTIONS, "loader-workers=2,fused-optimizer,bf16-autocast,torch-compile"),
    "class": (CLASS.replace("\n", "\r\n"), "channels-last,fused-optimizer,freeze-gc"),
    "arguments": (ARGUMENTS, "loader-workers=2,foreach-optimizer,more-threads"),
    "imported": (IMPORTED, "fused-optimizer,loader-workers=2"),
    "epochs": (EPOCHS, "freeze-gc,keep-freed-memory"),
}
EXPECTED = {
    "plain": "plain 2 True True True\nplain torch.float32 False 14\n",
    "functions": "functions 2 True True\nfunctions torch.float32\n",
    "class": "class (192, 1, 24, 3) (27, 1, 9, 3) True True\n",
    "arguments": f"arguments 2 True True\narguments {usable_cores()}\n",
    "imported": "imported 2 True\n",
    # Once before each loop; then every 50 of 120 steps where the job itself collects in each, else every 500.
    "epochs": "epochs 3 2 True\n",
}


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Patch]]:
    """Each job ran once with its fixes, and its patch was applied."""
    with pytest.MonkeyPatch.context() as patching, ThreadPoolExecutor(2) as pool:
        patching.setenv("TORCHDYNAMO_DISABLE", "1")  # compiling takes long, and is not what is asked here
        folders = {name: tmp_path_factory.mktemp(name) for name in JOBS}
        return dict(zip(JOBS, pool.map(_patched, folders.values(), JOBS.values()), strict=True))


def _patched(folder: Path, tried: tuple[str, str]) -> tuple[Path, Patch]:
    job, stack = tried
    (folder / "parts").mkdir()
    (folder / "parts" / "data.py").write_text(DATA)
    (folder / "parts" / "net.py").write_text(NET)
    run(folder, stack, job)
    report = msgspec.json.decode((folder / "report.json").read_bytes(), type=ArmReport)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    patch = patch_of(stack.split(","), report.applied)
    (folder / "it.patch").write_bytes(patch.diff.encode())
    subprocess.run(["git", "apply", "--check", "it.patch"], cwd=folder, check=True)
    subprocess.run(["git", "apply", "it.patch"], cwd=folder, check=True)
    return folder, patch


@pytest.mark.parametrize("name", JOBS)
def test_a_patched_job_runs_with_the_fixes_of_its_trial(
    name: str, patched: dict[str, tuple[Path, Patch]]
) -> None:
    folder, patch = patched[name]
    assert patch.left == {} and patch.made == JOBS[name][1].split(",")
    env = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run(
        warm.command("job.py"), cwd=folder, capture_output=True, text=True, env=env, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, EXPECTED[name]), done.stderr


SHARED = """
import torch
from torch.utils.data import DataLoader


def make(data, **more):
    return DataLoader(data, 8, **more)


rows, model = torch.randn(80, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
training, checked = make(rows, shuffle=True), make(rows)
for _ in range(2):
    for x in training:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    with torch.no_grad():
        for x in checked:
            model(x)
print(training.num_workers, checked.num_workers)
"""


def test_a_function_that_makes_loaders_for_evaluation_too_is_not_edited(tmp_path: Path) -> None:
    """What the trial left alone stays as it is."""
    stack = "loader-workers=2,persistent-workers"
    _, said = run(tmp_path, stack, SHARED)
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=ArmReport)
    patch = patch_of(stack.split(","), report.applied)
    assert said == "2 0\n" and patch.diff == "" and patch.made == []
    assert all("line 7 of job.py makes others too." in why for why in patch.left.values())
    alone = SHARED.replace("make(rows)", "DataLoader(rows)")
    run(tmp_path, stack, alone)
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=ArmReport)
    assert patch_of(stack.split(","), report.applied).made == stack.split(",")


def test_another_order_of_samples_is_told_beside_the_patch(patched: dict[str, tuple[Path, Patch]]) -> None:
    told = patched["plain"][1].remarks
    assert list(told) == ["loader-workers=2"] and "from the second epoch on" in told["loader-workers=2"]
    assert patched["functions"][1].remarks == {}  # which does not shuffle


def test_the_diff_is_what_a_person_would_write(patched: dict[str, tuple[Path, Patch]]) -> None:
    assert PLAIN_DIFF in patched["plain"][1].diff
