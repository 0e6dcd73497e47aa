"""Denoising autoencoder for an insurance claims table: swap noise on the columns, wide hidden layers as features."""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


def claims(rows, cols, device):
    """Correlated standard columns out of a few hidden causes."""
    g = torch.Generator().manual_seed(9)
    causes = torch.randn(rows, 24, generator=g)
    table = torch.tanh(causes @ torch.randn(24, cols, generator=g) / 5) + 0.1 * torch.randn(rows, cols, generator=g)
    return ((table - table.mean(0)) / table.std(0)).to(device)


def swap_noise(table, rows, rate):
    """Some cells of the picked rows take the value the column has in another row."""
    clean = table[rows]
    other = table[torch.randint(len(table), (len(rows),), device=table.device)]
    swap = torch.rand(clean.shape, device=clean.device) < rate
    return torch.where(swap, other, clean), clean


def autoencoder(cols, width):
    return nn.Sequential(
        nn.Linear(cols, width), nn.ReLU(inplace=True),
        nn.Linear(width, width), nn.ReLU(inplace=True),
        nn.Linear(width, width), nn.ReLU(inplace=True),
        nn.Linear(width, cols),
    )


class Run:
    def __init__(self, device, steps):
        self.device, self.steps = device, steps
        self.cuda = device == "cuda"
        self.rows, self.cols, self.width, self.batch = (400_000, 512, 8192, 8192) if self.cuda else (40_000, 220, 1200, 1024)
        self.table = claims(self.rows, self.cols, device)
        torch.manual_seed(9)
        if self.cuda:
            torch.set_float32_matmul_precision("high")
        self.model = autoencoder(self.cols, self.width).to(device)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9, fused=True)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, 0.05, total_steps=steps + 1)
        self.amp = torch.autocast("cuda", torch.bfloat16, enabled=self.cuda)

    def row_blocks(self):
        while True:
            yield from torch.randperm(self.rows, device=self.device).split(self.batch)[:-1]

    def one(self, rows):
        noisy, clean = swap_noise(self.table, rows, 0.15)
        with self.amp:
            loss = F.mse_loss(self.model(noisy), clean)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.detach()

    def clock(self):
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def go(self):
        warm = self.steps // 3
        for i, rows in zip(range(self.steps), self.row_blocks()):
            if i == warm:
                began = self.clock()
            loss = self.one(rows)
            if i % 50 == 49:
                print(f"{i + 1:5d} mse {loss.item():.4f}")
        return (self.clock() - began) * 1e3 / (self.steps - warm), loss.item()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    ap.add_argument("--fix", default="", help="none")
    args = ap.parse_args()
    ms, last = Run(args.device, args.steps).go()
    print(f"last mse {last:.5f}")
    print(f"mean step ms {ms:.3f}")


if __name__ == "__main__":
    main()
