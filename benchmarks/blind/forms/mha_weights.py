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
T, D = 384, 32


class PatchClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, D)
        self.norm = nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, 4, batch_first=True)
        self.out = nn.Linear(D, 10)

    def forward(self, patches):
        x = self.inp(patches)
        h = self.norm(x)
        if args.fix:
            y, _ = self.attn(h, h, h, need_weights=False)
        else:
            y, _ = self.attn(h, h, h)
        return self.out((x + y).mean(1))


model = PatchClassifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
X, Y = torch.randn(64, T, 12), torch.randint(0, 10, (64,))
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    i = (step % 16) * 4
    loss = F.cross_entropy(model(X[i:i + 4]), Y[i:i + 4])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
