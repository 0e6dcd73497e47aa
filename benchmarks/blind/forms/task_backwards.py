import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
TASKS = 6


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(),
                                   nn.Linear(256, 64))
        self.heads = nn.ModuleList([nn.Linear(64, 1) for _ in range(TASKS)])

    def forward(self, x):
        z = self.trunk(x)
        return [head(z).squeeze(1) for head in self.heads]


model = MultiTask()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
X = torch.randn(2048, 64)
Y = torch.randn(TASKS, 64) @ X.T
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    s = slice((step % 8) * 256, (step % 8 + 1) * 256)
    opt.zero_grad()
    losses = [F.smooth_l1_loss(out, Y[k, s]) for k, out in enumerate(model(X[s]))]
    if args.fix:
        sum(losses).backward()
    else:
        for one in losses:
            one.backward(retain_graph=True)
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(sum(losses).item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
