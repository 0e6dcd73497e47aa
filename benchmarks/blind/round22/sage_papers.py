"""Node classification on a citation graph, two mean-aggregation layers, full batch."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


def citation_graph(n, deg, classes, feats, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    order = torch.argsort(y, stable=True)
    src = torch.arange(n).repeat_interleave(deg)
    hop = torch.randint(1, n // (2 * classes), (n * deg,), generator=g)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(n)
    dst = order[(rank[src] + hop) % n]
    pair = torch.unique(torch.cat([src * n + dst, dst * n + src]))
    ei = torch.stack([pair // n, pair % n])
    x = F.one_hot(y, feats).float() * 0.5 + torch.randn(n, feats, generator=g)
    train = torch.rand(n, generator=g) < 0.5
    return ei, x, y, train


class DenseMean(nn.Module):
    def __init__(self, ei, n):
        super().__init__()
        adj = torch.zeros(n, n)
        adj[ei[0], ei[1]] = 1.0
        self.register_buffer("adj", adj / adj.sum(1, keepdim=True).clamp(min=1))

    def forward(self, h):
        return self.adj @ h


class EdgeMean(nn.Module):
    def __init__(self, ei, n):
        super().__init__()
        deg = torch.bincount(ei[0], minlength=n).clamp(min=1).float()
        self.register_buffer("src", ei[1])
        self.register_buffer("dst", ei[0])
        self.register_buffer("inv", (1 / deg).unsqueeze(1))

    def forward(self, h):
        return torch.zeros_like(h).index_add(0, self.dst, h.index_select(0, self.src)) * self.inv


class Sage(nn.Module):
    def __init__(self, agg, d_in, d, classes):
        super().__init__()
        self.agg = agg
        self.self1, self.nb1 = nn.Linear(d_in, d), nn.Linear(d_in, d, bias=False)
        self.self2, self.nb2 = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, classes)

    def forward(self, x):
        h = F.relu(self.self1(x) + self.nb1(self.agg(x)))
        h = F.relu(self.self2(h) + self.nb2(self.agg(h)))
        return self.out(h)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--degree", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--fix", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)

    ei, x, y, train = citation_graph(args.nodes, args.degree, 7, 64)
    agg = EdgeMean(ei, args.nodes) if args.fix else DenseMean(ei, args.nodes)
    net = Sage(agg, x.size(1), args.hidden, 7)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, weight_decay=5e-4)
    idx = train.nonzero().squeeze(1)
    y_train = y[idx]
    print(f"nodes {args.nodes} edges {ei.size(1)} train {len(idx)}")

    clock = []
    for epoch in range(1, args.steps + 1):
        t = time.perf_counter()
        loss = F.cross_entropy(net(x)[idx], y_train)
        opt.zero_grad()
        loss.backward()
        opt.step()
        clock.append(time.perf_counter() - t)
        if epoch % 20 == 0:
            print(f"epoch {epoch:4d} loss {loss.item():.5f}")
    last = clock[len(clock) // 2:]
    print(f"MEAN_STEP_MS {1000 * sum(last) / len(last):.2f}")


if __name__ == "__main__":
    main()
