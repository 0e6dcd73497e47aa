import argparse
import time

import torch
from torch import nn


class GainClassifier(nn.Module):
    def __init__(self, features, classes, fix):
        super().__init__()
        self.fix = fix
        self.gain = nn.Parameter(torch.ones(features))
        self.body = nn.Sequential(nn.Linear(features, 48), nn.GELU(), nn.Linear(48, classes))

    def forward(self, x):
        if self.fix:
            x = x * self.gain
        else:
            x = x @ torch.diag(self.gain)
        return self.body(x)


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
model = GainClassifier(1024, 20, args.fix)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
lossf = nn.CrossEntropyLoss()
data, target = torch.randn(2048, 1024), torch.randint(0, 20, (2048,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    k = step % 8
    loss = lossf(model(data[k * 256:(k + 1) * 256]), target[k * 256:(k + 1) * 256])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
