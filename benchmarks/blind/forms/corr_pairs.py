import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)


def decorrelation(z):
    d = z.shape[1]
    if args.fix:
        C = torch.corrcoef(z.T)
    else:
        zc = z - z.mean(0)
        norms = [zc[:, i].norm() for i in range(d)]
        rows = []
        for i in range(d):
            rows.append(torch.stack([(zc[:, i] * zc[:, j]).sum() / (norms[i] * norms[j]) for j in range(d)]))
        C = torch.stack(rows)
    return (C - torch.eye(d)).square().sum()


encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 20))
decoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32))
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
X = torch.randn(1024, 8) @ torch.randn(8, 32)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    x = X[(step % 4) * 256:(step % 4 + 1) * 256]
    z = encoder(x)
    loss = nn.functional.mse_loss(decoder(z), x) + 0.01 * decorrelation(z)
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
