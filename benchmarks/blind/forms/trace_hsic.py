import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--fix", action="store_true")
opts = parser.parse_args()
torch.manual_seed(0)


def centred_gram(f):
    f = f - f.mean(0)
    return f @ f.T


def hsic(a, b):
    K, L = centred_gram(a), centred_gram(b)
    n = len(a)
    if opts.fix:
        return (K * L.T).sum() / (n - 1) ** 2
    return torch.trace(K @ L) / (n - 1) ** 2


encoder = nn.Sequential(nn.Linear(40, 96), nn.ReLU(), nn.Linear(96, 24))
head = nn.Linear(24, 5)
optim = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3)
n = 768
x, label, group = torch.randn(n * 4, 40), torch.randint(0, 5, (n * 4,)), torch.randn(n * 4, 6)
elapsed = []
for step in range(opts.steps):
    start = time.perf_counter()
    rows = slice((step % 4) * n, (step % 4 + 1) * n)
    z = encoder(x[rows])
    loss = F.cross_entropy(head(z), label[rows]) + 0.1 * hsic(z, group[rows])
    optim.zero_grad()
    loss.backward()
    optim.step()
    elapsed.append(time.perf_counter() - start)
late = elapsed[opts.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(late) / len(late), 3))
