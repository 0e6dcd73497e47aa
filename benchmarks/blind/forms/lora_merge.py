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


class LoRALinear(nn.Module):
    def __init__(self, d, rank=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d, d) / d**0.5, requires_grad=False)
        self.A = nn.Parameter(torch.randn(rank, d) / d**0.5)
        self.B = nn.Parameter(torch.zeros(d, rank))

    def forward(self, x):
        if args.fix:
            return F.linear(x, self.weight) + (x @ self.A.T) @ self.B.T
        return F.linear(x, self.weight + self.B @ self.A)


d = 1536
net = nn.Sequential(LoRALinear(d), nn.ReLU(), LoRALinear(d), nn.ReLU(), nn.Linear(d, 10))
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
X = torch.randn(512, d)
Y = torch.randint(0, 10, (512,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step * 16) % 512
    loss = F.cross_entropy(net(X[i:i + 16]), Y[i:i + 16])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
