"""What a job does itself is seen as our own way to the same fix would be, and what it does not is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from applied_jobs import GRAPHS_ALONE, run
from findwall.model.applied import APPLIED_FILE

JOB = """
import contextlib, sys, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

ON = "on" in sys.argv

class Images(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((3, 8, 8), float(index)), float(index)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.images, self.scores = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 1)

    def attend(self, x):
        if ON:
            return nn.functional.scaled_dot_product_attention(x, x, x)
        return (x @ x.transpose(-1, -2)).softmax(-1) @ x

    def forward(self, x):
        x = self.images(x).flatten(2).transpose(1, 2)[:, None]
        x = self.attend(x) if ON else checkpoint(self.attend, x, use_reentrant=False)
        return self.scores(x.mean((1, 2)))

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), fused=ON)
if ON:
    model = model.to(memory_format=torch.channels_last)
if "compile" in sys.argv:
    model = torch.compile(model)
loader = DataLoader(Images(), 8, num_workers=2 * ON, persistent_workers=ON)
cast = torch.autocast("cpu", dtype=torch.bfloat16) if ON else contextlib.nullcontext()
for epoch in range(8):
    for x, y in loader:
        with cast:
            out = model(x.to(memory_format=torch.channels_last) if ON else x)
        loss = nn.functional.mse_loss(out.float().squeeze(1), y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SEEN = (
    "bf16-autocast",
    "sdpa",
    "fused-optimizer",
    "loader-workers=2",
    "persistent-workers",
    "channels-last",
    "less-recompute",
)


def shown(folder: Path, job: str, *typed: str, switched: tuple[str, ...] = SEEN) -> dict[str, dict[str, str]]:
    script = job.replace("sys.argv", repr(list(typed)))
    run(folder, "", script, "--switched", ",".join(switched))
    told: dict[str, dict[str, str]] = json.loads((folder / "out" / "rank0" / APPLIED_FILE).read_text())[
        "fixes"
    ]
    return told


def test_what_the_job_does_itself_is_seen(tmp_path: Path) -> None:
    told = shown(tmp_path, JOB, "on")
    assert {name: one["seen"] for name, one in told.items() if not one["trouble"]} == {
        "bf16-autocast": "3 products ran in bfloat16 in the first call",
        "sdpa": "1 call of scaled_dot_product_attention in the first forward pass",
        "fused-optimizer": "fused=True in AdamW",
        "loader-workers": "2 workers in a loader of 3 batches",
        "persistent-workers": "the same 2 workers in a loader's second pass",
        "channels-last": "1 of 1 convolution weights and the first convolution's input are channels-last",
        "less-recompute": "no call of a checkpoint in the job's models",
    }


def test_what_the_job_does_not_is_not_seen_and_why(tmp_path: Path) -> None:
    told = shown(tmp_path, JOB, switched=(*SEEN, "torch-compile", "tf32", "pin-memory", "cudnn-benchmark"))
    assert {name: one["trouble"] for name, one in told.items() if not one["seen"]} == {
        "bf16-autocast": "no product of the model was seen to run in 16 bits",
        "sdpa": "no fused attention was seen in the model",
        "fused-optimizer": "no optimizer stepped with fused=True",
        "loader-workers": "a loader has 0 workers",
        "persistent-workers": "no loader that feeds the steps was seen to keep its workers",
        "channels-last": "no weight of a convolution is channels-last",
        "less-recompute": "the job still checkpoints activations",
        "torch-compile": "the compiler made no graph",
        "tf32": "there is no GPU here, and only GPUs have TF32",
        "pin-memory": "there is no GPU here to pin memory for",
        "cudnn-benchmark": "there is no GPU here, and only convolutions of GPUs are timed",
    }


@pytest.mark.parametrize("on", [True, False])
def test_a_model_that_the_job_compiled_is_seen_by_its_graphs(tmp_path: Path, on: bool) -> None:
    typed = ("on", "compile") if on else ("compile",)
    told = shown(tmp_path, GRAPHS_ALONE + JOB, *typed, switched=("bf16-autocast", "sdpa", "torch-compile"))
    assert told["torch-compile"]["seen"].startswith("1 compiled graph of ")
    assert ("in bfloat16" in told["bf16-autocast"]["seen"]) == on
    assert (told["sdpa"]["seen"] == "1 call of scaled_dot_product_attention in a compiled graph") == on
