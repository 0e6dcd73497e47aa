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
MOLECULES, D = 200, 32


def pool(h, owner):
    if args.fix:
        counts = torch.bincount(owner, minlength=MOLECULES).clamp_min(1)
        return torch.zeros(MOLECULES, D).index_add(0, owner, h) / counts[:, None]
    return torch.stack([h[owner == m].mean(0) for m in range(MOLECULES)])


class AtomNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.atom = nn.Sequential(nn.Linear(9, D), nn.ReLU(), nn.Linear(D, D), nn.ReLU())
        self.out = nn.Linear(D, 1)

    def forward(self, atoms, owner):
        return self.out(pool(self.atom(atoms), owner)).squeeze(1)


model = AtomNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
batches = []
for _ in range(8):
    owner = torch.arange(MOLECULES).repeat_interleave(torch.randint(4, 20, (MOLECULES,)))
    batches.append((torch.randn(len(owner), 9), owner, torch.randn(MOLECULES)))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    atoms, owner, energy = batches[step % 8]
    loss = F.mse_loss(model(atoms, owner), energy)
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
