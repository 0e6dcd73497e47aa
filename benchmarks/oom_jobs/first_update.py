"""Train a large regression model. Weights and gradients fit; AdamW's two moments beside them do not."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from room import DEVICE, total_memory
from torch import Tensor, nn

WIDTH = 8192 if DEVICE == "cuda" else 1024
SHARE_OF_WEIGHTS = 0.28  # of the device: gradients as much again, AdamW's state twice as much


class Deep(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False, device=DEVICE) for _ in range(layers))
        self.head = nn.Linear(WIDTH, 1, device=DEVICE)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(F.layer_norm(x, (WIDTH,))) / len(self.layers) ** 0.5
        return self.head(F.layer_norm(x, (WIDTH,)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--mended", action="store_true", help="an optimizer with less state")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")

    total = total_memory()
    model = Deep(max(2, int(SHARE_OF_WEIGHTS * total / (WIDTH * WIDTH * 4))))
    if args.mended:
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(1, args.steps + 1):
        x = torch.randn(args.batch_size, WIDTH, device=DEVICE)
        target = x.mean(dim=1, keepdim=True) * WIDTH**0.5
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
