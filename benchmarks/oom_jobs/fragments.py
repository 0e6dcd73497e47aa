"""Train on sequences of two lengths beside a bank of features. What is free is in pieces: a request fails.

A long step leaves one free segment for each layer. A short one takes the larger part of each for activations
and the rest for the layer's features, which the bank keeps until the next step. So no segment is free as a
whole when a long step wants them again, though most of each is. With expandable segments
(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) the same job runs through.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from room import DEVICE, total_memory
from torch import Tensor, nn

WIDTH, LONG, SHORT, LAYERS = 256, 120, 96, 32
BANK_FROM_STEP, BANK_STRIDE = 4, 6  # the bank holds every sixth token, from step 4 on
BYTES_OF_A_SEQUENCE = LAYERS * LONG * WIDTH * 4  # what a long one keeps for backward


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, keeps: bool) -> tuple[Tensor, list[Tensor]]:
        features = []
        for layer in self.layers:
            x = torch.relu_(layer(x))
            if keeps:
                features.append(x.detach()[:, ::BANK_STRIDE].clone())
        return self.head(x), features


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=0, help="by default a share of the device")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--mended", action="store_true", help="changes nothing here: the setting is outside")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    total = total_memory()
    batch_size = args.batch_size or max(1, int(0.6 * total / BYTES_OF_A_SEQUENCE))
    model = Encoder().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    bank: list[Tensor] = []
    for step in range(1, args.steps + 1):
        length = LONG if step % 2 else SHORT
        sequences = torch.randn(batch_size, length, WIDTH, device=DEVICE)
        target = sequences[:, :, :1] * 0.5
        scores, features = model(sequences, keeps=step >= BANK_FROM_STEP)
        loss = F.mse_loss(scores, target)
        if bank:  # the head shall stay small on the features of the step before
            loss = loss + torch.stack([model.head(old).square().mean() for old in bank]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bank = features
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
