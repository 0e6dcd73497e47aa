"""Fixes made in scripts of people who let a trainer train: each took effect, or says truly why not.

The scripts are as their authors would write them; what is not installed is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from applied_jobs import run

HUGGING_FACE = """
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Rows(Dataset):
    def __len__(self):
        return 240
    def __getitem__(self, index):
        ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}

config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=8, num_train_epochs=2,
    use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, optim="adamw_torch")
Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Rows()).train()
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
data = TensorDataset(torch.randn(480, 16), torch.randn(480, 1))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
evaluation = DataLoader(data, 64)
model, optimizer, loader, checked = accelerator.prepare(
    model, optimizer, DataLoader(data, 8, shuffle=True), evaluation
)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    with torch.no_grad():
        for x, y in checked:
            model(x)
print("evaluation workers", evaluation.num_workers)
"""

LIGHTNING = """
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])
    def validation_step(self, batch, index):
        nn.functional.mse_loss(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

data = TensorDataset(torch.randn(480, 16), torch.randn(480, 1))
evaluation = DataLoader(data, 64)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False)
trainer.fit(Net(), DataLoader(data, 8, shuffle=True), evaluation)
print("evaluation workers", evaluation.num_workers)
"""

TIMM = """
import numpy
import timm
import torch
from PIL import Image
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from torch.utils.data import Dataset

class Rows(Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, index):
        return self.transform(Image.fromarray(numpy.full((32, 32, 3), index, numpy.uint8))), index % 10

model = timm.create_model("test_resnet", num_classes=10)
loader = create_loader(Rows(), (3, 32, 32), 4, is_training=True, use_prefetcher=False, num_workers=0,
    device=torch.device("cpu"))
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
for epoch in range(2):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

OWN_AUTOCAST = {
    "transformers": ("use_cpu=True", "use_cpu=True, bf16=True"),
    "accelerate": ("cpu=True", "cpu=True, mixed_precision='bf16'"),
    "lightning": ('"cpu"', '"cpu", precision="bf16-mixed"'),
}
TRAINERS = {"transformers": HUGGING_FACE, "accelerate": ACCELERATE, "lightning": LIGHTNING, "timm": TIMM}
FIXES = "loader-workers=2,persistent-workers,fused-optimizer,bf16-autocast,channels-last,pin-memory,freeze-gc"


def losses(folder: Path) -> list[float]:
    told: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return list(told["losses"])


@pytest.mark.parametrize("package", TRAINERS)
def test_fixes_reach_through_a_trainer(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    images = package == "timm"
    found, said = run(tmp_path, FIXES.replace("bf16-autocast,", "") if images else FIXES, TRAINERS[package])
    batches = 20 if images else 30 if package == "transformers" else 60
    assert found["loader-workers"] == {"seen": f"2 workers in a loader of {batches} batches", "trouble": ""}
    assert found["persistent-workers"]["seen"] == "the same 2 workers in a loader's second pass"
    assert found["fused-optimizer"]["seen"] == "fused=True in AdamW"
    assert found["freeze-gc"]["seen"].startswith("froze ")
    assert "evaluation" not in said or "evaluation workers 0" in said
    assert not found["pin-memory"]["seen"] and found["pin-memory"]["trouble"]
    if images:
        assert "convolution weights and the first convolution's input" in found["channels-last"]["seen"]
    else:
        assert found["bf16-autocast"]["seen"].endswith("ran in bfloat16 in the first call")
        assert found["channels-last"]["trouble"] == "the model has no Conv2d"


@pytest.mark.parametrize("package", OWN_AUTOCAST)
def test_a_trainers_own_autocast_is_told_and_its_order_of_samples_kept(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    job = TRAINERS[package].replace(*OWN_AUTOCAST[package])
    each = []
    for number, fixes in enumerate(("", "loader-workers=2,persistent-workers,bf16-autocast")):
        folder = tmp_path / str(number)
        folder.mkdir()
        found, _ = run(folder, fixes, job)
        each.append(losses(folder))
    assert found["bf16-autocast"] == {"seen": "", "trouble": "the job uses autocast itself"}
    assert "2 workers" in found["loader-workers"]["seen"]
    assert each[0] == each[1] and len(each[0]) >= 32


@pytest.mark.parametrize("package", ["transformers", "lightning"])
def test_a_trainers_model_is_compiled(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    found, _ = run(tmp_path, "torch-compile", TRAINERS[package])
    assert "compiled graph" in found["torch-compile"]["seen"]
