import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
rng = np.random.default_rng(0)
X = rng.normal(3.0, 2.0, size=(1024, 1, 28, 28))
Y = rng.integers(0, 10, size=1024)
X = (X - X.mean()) / X.std()

model = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.Conv2d(16, 16, 5, stride=2), nn.ReLU(),
                      nn.Flatten(), nn.Linear(16 * 10 * 10, 64), nn.ReLU(), nn.Linear(64, 10))
if args.fix:
    X = X.astype(np.float32)
else:
    model = model.double()
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 32) * 32
    x, y = torch.from_numpy(X[i:i + 32]), torch.from_numpy(Y[i:i + 32])
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 3))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
