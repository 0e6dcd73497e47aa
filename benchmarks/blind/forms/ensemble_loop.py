import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
MEMBERS = 48


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        nets = [nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 8)) for _ in range(MEMBERS)]
        if args.fix:
            self.w = nn.ParameterList([torch.stack([n[i].weight.detach().T for n in nets]) for i in (0, 2)])
            self.b = nn.ParameterList([torch.stack([n[i].bias.detach()[None] for n in nets]) for i in (0, 2)])
        else:
            self.nets = nn.ModuleList(nets)

    def forward(self, x):
        if args.fix:
            h = nn.functional.silu(torch.baddbmm(self.b[0], x, self.w[0]))
            return torch.baddbmm(self.b[1], h, self.w[1])
        return torch.stack([net(x[i]) for i, net in enumerate(self.nets)])


model = Ensemble()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
state = torch.randn(2000, 10)
change = torch.tanh(state @ torch.randn(10, 8))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    rows = torch.randint(0, 2000, (MEMBERS, 32))
    loss = (model(state[rows]) - change[rows]).square().mean((1, 2)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
