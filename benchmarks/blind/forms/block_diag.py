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


class GroupedLinear(nn.Module):
    def __init__(self, groups=16, width=64):
        super().__init__()
        self.groups, self.width = groups, width
        self.blocks = nn.Parameter(torch.randn(groups, width, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(groups * width))

    def forward(self, x):
        if args.fix:
            xg = x.view(-1, self.groups, self.width).transpose(0, 1)
            return torch.bmm(xg, self.blocks).transpose(0, 1).reshape(x.shape) + self.bias
        W = torch.block_diag(*self.blocks)
        return x @ W + self.bias


model = nn.Sequential(GroupedLinear(), nn.ReLU(), GroupedLinear(), nn.ReLU(), nn.Linear(1024, 10))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
X, Y = torch.randn(1024, 1024), torch.randint(0, 10, (1024,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 8) * 128
    loss = F.cross_entropy(model(X[i:i + 128]), Y[i:i + 128])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
