import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
T, B, D = 160, 16, 64


class LeakyRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, D)
        self.decay = nn.Parameter(torch.full((D,), 0.9))
        self.out = nn.Linear(D, 1)

    def forward(self, x):
        drive = self.inp(x)
        h = torch.zeros(B, D)
        states, history = [], torch.empty(B, 0, D)
        for step_in in drive.unbind(1):
            h = torch.tanh(self.decay * h + step_in)
            if args.fix:
                states.append(h)
            else:
                history = torch.cat([history, h.unsqueeze(1)], dim=1)
        if args.fix:
            history = torch.stack(states, dim=1)
        return self.out(history)


model = LeakyRNN()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
X = torch.randn(8, B, T, 8)
Y = X.cumsum(2).mean(-1, keepdim=True).sin()
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    loss = nn.functional.mse_loss(model(X[step % 8]), Y[step % 8])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
