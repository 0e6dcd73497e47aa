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


class PatchConv(nn.Module):
    def __init__(self, cin, cout, k=5):
        super().__init__()
        self.cin, self.cout, self.k = cin, cout, k
        self.weight = nn.Parameter(torch.randn(cout, cin * k * k) / (cin * k * k) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        if args.fix:
            w = self.weight.view(self.cout, self.cin, self.k, self.k)
            return F.conv2d(x, w, self.bias, padding=self.k // 2)
        patches = F.unfold(x, self.k, padding=self.k // 2)
        y = self.weight @ patches + self.bias[:, None]
        return y.view(len(x), self.cout, *x.shape[2:])


model = nn.Sequential(PatchConv(1, 8), nn.ReLU(), PatchConv(8, 8), nn.ReLU(), PatchConv(8, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
clean = torch.rand(64, 1, 4, 4).repeat_interleave(12, 2).repeat_interleave(12, 3)
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 8) * 8
    target = clean[i:i + 8]
    loss = F.mse_loss(model(target + 0.2 * torch.randn_like(target)), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
