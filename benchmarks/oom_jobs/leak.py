"""Train an encoder and note how its features spread. What is noted holds the features of every step."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from room import DEVICE, total_memory
from torch import Tensor, nn

WIDTH, LENGTH = 256, 128
BYTES_OF_A_SEQUENCE = LENGTH * WIDTH * 4  # its features


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layers(x)
        return features, self.head(torch.tanh(features))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=0, help="by default a fiftieth of the device")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--mended", action="store_true", help="note a number, not a graph")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    total = total_memory()
    batch_size = args.batch_size or max(1, int(0.02 * total / BYTES_OF_A_SEQUENCE))
    model = Encoder().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    spread: list[Tensor] = []
    for step in range(1, args.steps + 1):
        sequences = torch.randn(batch_size, LENGTH, WIDTH, device=DEVICE)
        target = sequences[:, :, :1] * 0.5
        features, scores = model(sequences)
        if args.mended:
            features = features.detach()
        spread.append(features.var())
        loss = F.mse_loss(scores, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"spread {torch.stack(spread).mean().item():.4f}")


if __name__ == "__main__":
    main()
