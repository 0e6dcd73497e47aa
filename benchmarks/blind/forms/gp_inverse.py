import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
WINDOW, AHEAD, D = 400, 8, 6


class WindowGP(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((D,), 2.0))
        self.noise = nn.Parameter(torch.tensor(0.1))

    def kernel(self, a, b):
        return torch.exp(-0.5 * torch.cdist(a / self.scale, b / self.scale).square())

    def predict(self, x, y, x_new):
        K = self.kernel(x, x) + self.noise * torch.eye(len(x))
        if args.fix:
            weights = torch.cholesky_solve(y, torch.linalg.cholesky(K))
        else:
            weights = torch.linalg.inv(K) @ y
        return self.kernel(x_new, x) @ weights


gp = WindowGP().eval()
n = WINDOW + AHEAD * 200
x_all = torch.randn(n, D)
y_all = (x_all[:, :1] * 2).sin() + 0.1 * torch.randn(n, 1)
errors, times = [], []
with torch.no_grad():
    for step in range(args.steps):
        t0 = time.perf_counter()
        i = (step % 200) * AHEAD
        j = i + WINDOW
        guess = gp.predict(x_all[i:j], y_all[i:j], x_all[j:j + AHEAD])
        errors.append((guess - y_all[j:j + AHEAD]).square().mean())
        times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(torch.stack(errors).mean().item(), 4))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
