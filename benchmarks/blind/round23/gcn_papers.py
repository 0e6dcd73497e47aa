"""Full-graph GCN node classification on a synthetic citation graph."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def citation_graph(n, avg_degree, n_classes, n_feat, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (n,), generator=g)
    src = torch.randint(0, n, (n * avg_degree // 2,), generator=g)
    order = labels.argsort()
    rank = torch.empty(n, dtype=torch.long)
    rank[order] = torch.arange(n)
    jump = (torch.randn(len(src), generator=g) * n / 40).long()
    dst = order[(rank[src] + jump) % n]
    edges = torch.cat([torch.stack([src, dst]), torch.stack([dst, src])], 1)
    centers = torch.randn(n_classes, n_feat, generator=g)
    x = 0.4 * centers[labels] + torch.randn(n, n_feat, generator=g)
    return x, labels, edges.unique(dim=1)


def normalized_adjacency(edges, n):
    adj = torch.zeros(n, n)
    adj[edges[0], edges[1]] = 1.0
    adj.fill_diagonal_(1.0)
    d = adj.sum(1).rsqrt()
    return d[:, None] * adj * d[None, :]


class GCNLayer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)

    def forward(self, x, adj):
        return adj @ self.lin(x)


class GCN(nn.Module):
    def __init__(self, n_feat, hidden, n_classes, layers=3, dropout=0.3):
        super().__init__()
        dims = [n_feat] + [hidden] * (layers - 1) + [n_classes]
        self.layers = nn.ModuleList(GCNLayer(a, b) for a, b in zip(dims[:-1], dims[1:]))
        self.dropout = dropout

    def forward(self, x, adj):
        for i, layer in enumerate(self.layers):
            x = layer(x, adj)
            if i < len(self.layers) - 1:
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    n, n_classes = 5000, 16
    x, labels, edges = citation_graph(n, 10, n_classes, 128)
    train = torch.rand(n) < 0.5
    adj = normalized_adjacency(edges, n)
    if args.fix == "v2":
        adj = adj.to_sparse_csr()
    model = GCN(128, 64, n_classes)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        logits = model(x, adj)
        loss = F.cross_entropy(logits[train], labels[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            acc = (logits[~train].argmax(1) == labels[~train]).float().mean()
            print(f"epoch {step} loss {loss.item():.4f} val acc {acc.item():.3f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
