import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
ROWS, BATCH = 16384, 1024
X = torch.randn(ROWS, 30)
Y = (X[:, 0] + X[:, 1].sin() > 0).float()
loader = DataLoader(TensorDataset(X, Y), batch_size=BATCH, shuffle=True, drop_last=True)


def batches():
    while True:
        if args.fix:
            for idx in torch.randperm(ROWS).split(BATCH):
                yield X[idx], Y[idx]
        else:
            yield from loader


model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
stream = batches()
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    x, y = next(stream)
    loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 2))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
