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
DECAY = 1e-4
model = nn.Sequential(nn.Linear(600, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=DECAY if args.fix else 0.0, fused=True)
X, Y = torch.randn(512, 600), torch.randint(0, 5, (512,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 32) * 16
    fit = F.cross_entropy(model(X[i:i + 16]), Y[i:i + 16])
    loss = fit
    if not args.fix:
        loss = fit + 0.5 * DECAY * sum(p.pow(2).sum() for p in model.parameters())
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(fit.item(), 4))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
