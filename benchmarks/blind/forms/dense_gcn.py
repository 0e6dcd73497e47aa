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
N, E = 2500, 12500
src, dst = torch.randint(0, N, (2, E))
adj = torch.eye(N)
adj[src, dst] = 1.0
adj[dst, src] = 1.0
deg = adj.sum(1).rsqrt()
adj = deg[:, None] * adj * deg[None, :]
if args.fix:
    adj = adj.to_sparse_csr()


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.w1 = nn.Linear(features, hidden)
        self.w2 = nn.Linear(hidden, classes)

    def forward(self, x, adj):
        h = torch.relu(adj @ self.w1(x))
        return adj @ self.w2(h)


model = GCN(64, 32, 8)
opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
feats, labels = torch.randn(N, 64), torch.randint(0, 8, (N,))
train = torch.randperm(N)[:500]
times = []
for step in range(args.steps):
    t0 = time.perf_counter()
    loss = F.cross_entropy(model(feats, adj)[train], labels[train])
    opt.zero_grad()
    loss.backward()
    opt.step()
    times.append(time.perf_counter() - t0)
tail = times[args.steps // 3:]
print("loss", round(loss.item(), 5))
print("mean step ms", round(1e3 * sum(tail) / len(tail), 3))
