import argparse
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=400)
ap.add_argument("--fix", action="store_true")
args = ap.parse_args()
torch.manual_seed(0)
STATES, LAG = 160, 48


class MarkovModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.randn(STATES, STATES) * 2)

    def forward(self, start, end):
        T = torch.softmax(self.logits, dim=1)
        if args.fix:
            P = torch.linalg.matrix_power(T, LAG)
        else:
            P = T
            for _ in range(LAG - 1):
                P = P @ T
        return -P[start, end].clamp_min(1e-12).log().mean()


model = MarkovModel()
opt = torch.optim.Adam(model.parameters(), lr=0.02)
pairs = torch.randint(0, STATES, (2, 20000))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    pick = torch.randint(0, 20000, (512,))
    loss = model(pairs[0, pick], pairs[1, pick])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
