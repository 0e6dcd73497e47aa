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
N, D, WIDE = 24, 96, 32


class RelationNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, D)
        self.pair = nn.Linear(2 * D, WIDE)
        self.out = nn.Linear(WIDE, 3)

    def forward(self, objects):
        h = torch.relu(self.embed(objects))
        if args.fix:
            first, second = self.pair.weight.split(D, dim=1)
            z = (h @ first.T).unsqueeze(2) + (h @ second.T).unsqueeze(1) + self.pair.bias
        else:
            left = h.unsqueeze(2).repeat(1, 1, N, 1)
            right = h.unsqueeze(1).repeat(1, N, 1, 1)
            z = self.pair(torch.cat([left, right], dim=-1))
        return self.out(torch.relu(z).mean((1, 2)))


model = RelationNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scenes, answers = torch.randn(128, N, 12), torch.randint(0, 3, (128,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 16) * 8
    loss = F.cross_entropy(model(scenes[i:i + 8]), answers[i:i + 8])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
