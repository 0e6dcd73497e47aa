import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)


class RBFNet(nn.Module):
    def __init__(self, features, centres):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(centres, features))
        self.log_width = nn.Parameter(torch.full((centres,), -4.0))
        self.out = nn.Linear(centres, 1)

    def sq_dist(self, x):
        c = self.centres
        if args.fix:
            return x.square().sum(1)[:, None] + c.square().sum(1) - 2 * x @ c.T
        return ((x[:, None, :] - c[None, :, :]) ** 2).sum(-1)

    def forward(self, x):
        return self.out(torch.exp(-self.sq_dist(x) * self.log_width.exp())).squeeze(1)


net = RBFNet(48, 192)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
x_all = torch.randn(1280, 48)
y_all = x_all[:, :3].prod(1)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    k = (step % 10) * 128
    loss = nn.functional.mse_loss(net(x_all[k:k + 128]), y_all[k:k + 128])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
