"""Train on longer sequences step by step, within a share of the device that becomes too small for them."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from room import DEVICE, limit, total_memory
from torch import Tensor, nn

WIDTH, LAYERS, SHORTEST, LONGER = 256, 16, 32, 8
LONGEST_STEP = 12
BYTES_OF_A_SEQUENCE = LAYERS * (SHORTEST + LONGER * LONGEST_STEP) * WIDTH * 4  # of the longest


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu_(layer(x))
        return self.head(x.mean(dim=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=0, help="by default a third of the device")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--mended", action="store_true", help="a larger share of the device")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    limit(0.7 if args.mended else 0.25)

    total = total_memory()
    batch_size = args.batch_size or max(1, int(0.33 * total / BYTES_OF_A_SEQUENCE))
    model = Tagger().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        length = SHORTEST + LONGER * min(step, LONGEST_STEP)
        sequences = torch.randn(batch_size, length, WIDTH, device=DEVICE)
        labels = torch.randint(8, (batch_size,), device=DEVICE)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(sequences), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
