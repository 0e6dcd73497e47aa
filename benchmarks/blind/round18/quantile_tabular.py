"""Default risk on wide numeric tables: every column is cut at its quantiles and each bin has a learnt vector."""
import argparse
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def loan_book(rows, columns, seed=21):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    x[:, ::3] = np.exp(x[:, ::3])
    x[:, 1::3] = np.round(x[:, 1::3], 2)
    bend = np.sin(3 * x[:, :8]).sum(1) + (x[:, 8:16] > 0.7).sum(1) - 0.6 * x[:, 0] * x[:, 1]
    y = (bend + rng.logistic(size=rows) > np.quantile(bend, 0.7)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


class QuantileBins(nn.Module):
    """Number of the quantile bin of every value; a bin holds its left edge."""

    def __init__(self, sample, bins, form=""):
        super().__init__()
        levels = torch.linspace(0, 1, bins + 1)[1:-1]
        self.register_buffer("edges", torch.quantile(sample, levels, dim=0).t().contiguous())   # [columns, bins - 1]
        self.form = form

    def forward(self, x):
        if self.form == "searchsorted":
            return torch.searchsorted(self.edges, x.t().contiguous(), right=True).t()
        if self.form == "int32":
            return (x.unsqueeze(-1) >= self.edges).sum(dim=-1, dtype=torch.int32).long()
        return (x.unsqueeze(-1) >= self.edges).sum(dim=-1)


class BinnedMLP(nn.Module):
    def __init__(self, quantiles, columns, bins, dim, hidden):
        super().__init__()
        self.quantiles = quantiles
        self.vectors = nn.Embedding(columns * bins, dim)
        nn.init.normal_(self.vectors.weight, std=0.1)
        self.register_buffer("first", torch.arange(columns) * bins)
        self.mlp = nn.Sequential(nn.Linear(columns * dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1))

    def forward(self, x):
        h = self.vectors(self.quantiles(x) + self.first)
        return self.mlp(h.flatten(1)).squeeze(1)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--fix", default="", help="searchsorted or int32")
    p.add_argument("--device", default="cpu")
    return p.parse_args()


def train(args, c):
    x, y = (v.to(args.device) for v in loan_book(c.rows, c.columns))
    mean, std = x.mean(0), x.std(0)
    x = (x - mean) / std
    quantiles = QuantileBins(x[:10_000], c.bins, args.fix)
    model = BinnedMLP(quantiles, c.columns, c.bins, c.dim, c.hidden).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3, fused=True)
    total = torch.zeros((), device=args.device)
    clock = []
    for step in range(args.steps):
        if step == args.steps // 3:
            torch.cuda.synchronize() if args.device == "cuda" else None
            clock.append(time.perf_counter())
        rows = torch.randint(len(x), (c.batch,), device=args.device)
        logit = model(x[rows])
        loss = F.binary_cross_entropy_with_logits(logit, y[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    torch.cuda.synchronize() if args.device == "cuda" else None
    clock.append(time.perf_counter())
    return total.item() / args.steps, clock


if __name__ == "__main__":
    args = parse()
    torch.manual_seed(4)
    config = SimpleNamespace(rows=40_000, columns=48, bins=256, dim=6, hidden=128, batch=2048)
    if args.device == "cuda":
        config = SimpleNamespace(rows=400_000, columns=200, bins=512, dim=16, hidden=512, batch=16_384)
    loss, (start, end) = train(args, config)
    print(f"mean loss {loss:.6f}")
    print(f"mean step ms {(end - start) * 1e3 / (args.steps - args.steps // 3):.3f}")
