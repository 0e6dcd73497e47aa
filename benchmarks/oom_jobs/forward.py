"""Train a residual picture classifier. The activations of the whole batch do not fit: forward fails."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from room import DEVICE, total_memory
from torch import Tensor, nn

CHANNELS, SIZE, BLOCKS, CLASSES = 64, 64, 32, 10
BYTES_OF_A_PICTURE = 3 * BLOCKS * CHANNELS * SIZE * SIZE * 4  # what a block keeps for backward, three times


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.conv(x)))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(pictures)).mean(dim=(2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=0, help="by default too many for the device")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--mended", action="store_true", help="half the batch")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True

    total = total_memory()
    batch_size = args.batch_size or max(2, int(1.3 * total / BYTES_OF_A_PICTURE))
    if args.mended:
        batch_size //= 2
    model = Classifier().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(1, args.steps + 1):
        pictures = torch.randn(batch_size, 3, SIZE, SIZE, device=DEVICE)
        labels = torch.randint(CLASSES, (batch_size,), device=DEVICE)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
