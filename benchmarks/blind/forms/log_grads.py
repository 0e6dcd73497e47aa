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


class Residual(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.net(x)


def gradient_report(model):
    report = {}
    for name, p in model.named_parameters():
        g = p.grad
        report[name] = {"norm": g.norm().item(), "max": g.abs().max().item(), "std": g.std().item(),
                        "hist": torch.histc(g, bins=30).tolist()}
    return report


model = nn.Sequential(nn.Linear(16, 64), *[Residual() for _ in range(8)], nn.Linear(64, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
X, Y = torch.randn(512, 16), torch.randint(0, 3, (512,))
log, times = [], []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 16) * 32
    loss = F.cross_entropy(model(X[i:i + 32]), Y[i:i + 32])
    opt.zero_grad()
    loss.backward()
    if not args.fix or step % 50 == 0:
        log.append({"step": step, "loss": loss.item(), "grads": gradient_report(model)})
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
