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


def energy(weight):
    if args.fix:
        return weight.square().sum()
    return torch.linalg.svdvals(weight).square().sum()


class MLP(nn.Module):
    def __init__(self, d=160):
        super().__init__()
        self.inp, self.mid, self.out = nn.Linear(20, d), nn.Linear(d, d), nn.Linear(d, 2)

    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.inp(x)))))

    def penalty(self):
        return sum(energy(m.weight) for m in (self.inp, self.mid, self.out))


model = MLP()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
X = torch.randn(1024, 20)
Y = (X[:, 0] * X[:, 1] > 0).long()
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 8) * 128
    loss = F.cross_entropy(model(X[i:i + 128]), Y[i:i + 128]) + 1e-3 * model.penalty()
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
