"""Rain radar nowcasting with a small U-Net.

Domain: weather, training with lightning (bf16-mixed).
Why: the allocator's cache was switched off while hunting a memory error and stayed so. Every tensor of forward and backward
     is a cudaMalloc and a cudaFree, and a free waits for the device: hundreds a step.
Trap: the device is idle most of the time between healthy convolutions, which looks like a host that launches too slowly
      (Lightning is blamed readily); the frees synchronise, though nothing in the code reads a value.
Fixes: cache-on (the variable is not set).
"""

import os
import sys
import warnings

if "cache-on" not in sys.argv:
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from common import Clock, arguments

WALLS = [["overhead", "allocator"]]
FIXES = ["cache-on"]
TRUTH_STEPS = 150


class Radar(IterableDataset):
    """A ring of sequences that lie on the device already."""

    def __init__(self, batch, side, device):
        self.frames = torch.rand(8, batch, 12, side, side, device=device)

    def __iter__(self):
        step = 0
        while True:
            yield self.frames[step % 8]
            step += 1


def double(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.SiLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.SiLU())


class Nowcast(lightning.LightningModule):
    def __init__(self, width, clock):
        super().__init__()
        self.down = nn.ModuleList([double(8, width), double(width, 2 * width), double(2 * width, 4 * width)])
        self.deep = double(4 * width, 8 * width)
        self.up = nn.ModuleList([double(12 * width, 4 * width), double(6 * width, 2 * width), double(3 * width, width)])
        self.out = nn.Conv2d(width, 4, 1)
        self.clock = clock

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.deep(x)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return self.out(x)

    def training_step(self, frames, index):
        seen, future = frames[:, :8], frames[:, 8:]
        guess = self(seen)
        return F.smooth_l1_loss(guess.float(), future) + 0.1 * (guess.float().mean((2, 3)) - future.mean((2, 3))).abs().mean()

    def on_train_batch_end(self, outputs, batch, index):
        self.clock.tick()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    warnings.filterwarnings("ignore", ".*num_workers.*")
    torch.manual_seed(0)
    batch, side, width = (16, 192, 48) if args.gpu else (1, 32, 8)
    clock = Clock(args.steps)
    model = Nowcast(width, clock)
    loader = DataLoader(Radar(batch, side, args.device), batch_size=None, num_workers=0)
    trainer = lightning.Trainer(max_steps=args.steps, accelerator="gpu" if args.gpu else "cpu", devices=1,
                                precision="bf16-mixed", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    clock.report()


if __name__ == "__main__":
    main()
