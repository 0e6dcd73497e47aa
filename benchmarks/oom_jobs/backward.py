"""Train an encoder with a classifier at every layer. Forward fits, backward does not.

The gradients that come back from all classifiers wait, each as large as a layer's activations, before the
first layer can free its own.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from room import DEVICE, total_memory
from torch import Tensor, nn

WIDTH, LENGTH, LAYERS, CLASSES = 256, 128, 32, 16
BYTES_OF_A_SEQUENCE = LAYERS * LENGTH * WIDTH * 4  # what forward keeps for backward


class EarlyExits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.exits = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> list[Tensor]:
        hidden = []
        for layer in self.layers:
            x = torch.relu_(layer(x))
            hidden.append(x)
        return [leave(one)[:, -1] for leave, one in zip(self.exits, hidden, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=0, help="by default too many for the device")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--mended", action="store_true", help="half the batch")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    total = total_memory()
    batch_size = args.batch_size or max(2, int(0.65 * total / BYTES_OF_A_SEQUENCE))
    if args.mended:
        batch_size //= 2
    model = EarlyExits().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        sequences = torch.randn(batch_size, LENGTH, WIDTH, device=DEVICE)
        labels = torch.randint(CLASSES, (batch_size,), device=DEVICE)
        losses = [F.cross_entropy(scores, labels) for scores in model(sequences)]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
