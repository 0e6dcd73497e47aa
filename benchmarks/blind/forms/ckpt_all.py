import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.sin(self.up(self.norm(x))))


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(2, 48), nn.Linear(48, 3)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def stack(self, h):
        for block in self.blocks:
            h = block(h) if args.fix else checkpoint(block, h, use_reentrant=False)
        return h

    def forward(self, xy):
        h = torch.sin(30 * self.inp(xy))
        h = self.stack(h) if args.fix else checkpoint(self.stack, h, use_reentrant=False)
        return self.out(h)


model = Field()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
points = torch.rand(16, 1024, 2)
colour = torch.stack([points[..., 0], points[..., 1], points.prod(-1)], -1)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    loss = F.mse_loss(model(points[step % 16]), colour[step % 16])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
