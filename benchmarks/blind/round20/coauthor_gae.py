"""Who will write with whom: a graph autoencoder on a co-authorship graph, scored on edges and sampled non-edges."""
import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXES = ("pairs",)


@dataclass
class Graph:
    features: torch.Tensor     # [authors, topics]
    edges: torch.Tensor        # [2, E], both directions
    weight: torch.Tensor       # 1 / sqrt(deg deg)
    positive: torch.Tensor     # [2, P], one direction, to be scored


def coauthors(n, topics, per_author, seed=9):
    """Authors of 40 fields write mostly within their field."""
    rng = np.random.default_rng(seed)
    field = rng.integers(40, size=n)
    centre = rng.normal(size=(40, topics))
    x = (centre[field] + rng.normal(size=(n, topics)) > 1.0).astype(np.float32)
    order = np.argsort(field, kind="stable")
    src = np.repeat(np.arange(n), per_author)
    near = order[(np.argsort(order)[src] + rng.integers(1, 60, size=len(src))) % n]
    dst = np.where(rng.random(len(src)) < 0.85, near, rng.integers(n, size=len(src)))
    pairs = np.unique(np.sort(np.stack([src, dst]), 0), axis=1)
    pairs = torch.from_numpy(pairs[:, pairs[0] != pairs[1]])
    loops = torch.arange(n).expand(2, n)
    edges = torch.cat([pairs, pairs.flip(0), loops], 1)
    deg = torch.bincount(edges[1], minlength=n).float()
    weight = (deg[edges[0]] * deg[edges[1]]).rsqrt()
    return Graph(torch.from_numpy(x), edges, weight, pairs)


class GCN(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.linear = nn.Linear(c_in, c_out)

    def forward(self, x, graph):
        h = self.linear(x)
        message = h.index_select(0, graph.edges[0]) * graph.weight[:, None]
        return torch.zeros_like(h).index_add(0, graph.edges[1], message)


class InnerProductDecoder(nn.Module):
    """Logit of every pair of authors."""

    def forward(self, z, src, dst):
        adjacency = z @ z.t()
        return adjacency[src, dst]


class PairDecoder(nn.Module):
    def forward(self, z, src, dst):
        return (z.index_select(0, src) * z.index_select(0, dst)).sum(-1)


class GAE(nn.Module):
    def __init__(self, topics, hidden, latent, decoder):
        super().__init__()
        self.first, self.second = GCN(topics, hidden), GCN(hidden, latent)
        self.decode = decoder

    def forward(self, graph, src, dst):
        z = self.second(F.relu(self.first(graph.features, graph)), graph)
        return self.decode(z, src, dst)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=50)
    cli.add_argument("--fix", choices=FIXES)
    cli.add_argument("--size", choices=("cpu", "small"), default="cpu")
    cli.add_argument("--lr", type=float, default=5e-3)
    args = cli.parse_args()
    n, topics, hidden = (2400, 96, 48) if args.size == "cpu" else (300, 24, 16)

    graph = coauthors(n, topics, 4)
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(6)
    decoder = {None: InnerProductDecoder, "pairs": PairDecoder}[args.fix]()
    model = GAE(topics, hidden, 32, decoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    p = graph.positive.shape[1]
    label = torch.cat([torch.ones(p), torch.zeros(p)])
    print(f"{n} authors, {p} pairs")

    history = []
    for epoch in range(args.steps):
        began = time.perf_counter()
        negative = torch.randint(n, (2, p), generator=gen)
        src, dst = torch.cat([graph.positive, negative], 1)
        logit = model(graph, src, dst)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right = ((logit > 0) == (label > 0)).float().mean()
        history.append((time.perf_counter() - began, loss.item(), right.item()))
        if epoch % 20 == 0:
            print(f"epoch {epoch} loss {history[-1][1]:.4f} right {history[-1][2]:.3f}")
    late = [h[0] for h in history[args.steps // 3:]]
    print(f"mean loss {sum(h[1] for h in history) / len(history):.6f}")
    print(f"mean step ms {1e3 * sum(late) / len(late):.3f}")


if __name__ == "__main__":
    main()
