import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
ITEMS, BASKETS = 500, 384


class Glove(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.a, self.b = nn.Embedding(ITEMS, d), nn.Embedding(ITEMS, d)
        self.bias = nn.Parameter(torch.zeros(ITEMS))

    def forward(self, counts):
        score = self.a.weight @ self.b.weight.T + self.bias + self.bias[:, None]
        return ((score - torch.log1p(counts.float())) ** 2).mean()


model = Glove()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
liked = (torch.rand(BASKETS * 10, ITEMS) < 0.1).long()
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    s = (step % 10) * BASKETS
    baskets = liked[s:s + BASKETS]
    if args.fix:
        counts = baskets.float().T @ baskets.float()
    else:
        counts = baskets.T @ baskets
    loss = model(counts)
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
