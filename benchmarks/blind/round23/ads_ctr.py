"""Click-through-rate model (hashed categorical features + MLP) with a rolling AUC."""
import argparse
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class AdModel(nn.Module):
    def __init__(self, n_fields=16, buckets=1000, dim=8, n_dense=13):
        super().__init__()
        self.register_buffer("offsets", torch.arange(n_fields) * buckets)
        self.emb = nn.Embedding(n_fields * buckets, dim)
        self.wide = nn.EmbeddingBag(n_fields * buckets, 1, mode="sum")
        self.mlp = nn.Sequential(nn.Linear(n_fields * dim + n_dense, 128), nn.ReLU(),
                                 nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, cats, dense):
        ids = cats + self.offsets
        deep = torch.cat([self.emb(ids).flatten(1), dense], 1)
        return (self.mlp(deep) + self.wide(ids)).squeeze(1)


class RollingMetrics:
    """AUC and calibration over the most recent predictions."""

    def __init__(self, batches):
        self.scores = deque(maxlen=batches)
        self.labels = deque(maxlen=batches)

    def update(self, score, label):
        self.scores.append(score)
        self.labels.append(label)

    def compute(self):
        s, y = torch.cat(list(self.scores)), torch.cat(list(self.labels))
        order = s.argsort()
        y_sorted = y[order].double()
        rank = torch.arange(1, len(s) + 1, dtype=torch.float64)
        pos = y_sorted.sum()
        neg = len(s) - pos
        auc = ((rank * y_sorted).sum() - pos * (pos + 1) / 2) / (pos * neg).clamp(min=1)
        return {"auc": auc.item(), "calibration": (s.mean() / y.mean().clamp(min=1e-6)).item()}


def make_batch(step, batch, n_fields=16, buckets=1000, n_dense=13):
    g = torch.Generator().manual_seed(step)
    cats = (torch.rand(batch, n_fields, generator=g) ** 2 * buckets).long()
    dense = torch.randn(batch, n_dense, generator=g)
    logit = dense[:, :4].sum(1) * 0.5 + (cats[:, 0] % 7 - 3) * 0.3 - 1.5
    label = (torch.rand(batch, generator=g) < logit.sigmoid()).float()
    return cats, dense, label


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    model = AdModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    metrics = RollingMetrics(batches=48)
    batch_size = 8192
    # the log is being continued, so the window starts out filled
    for i in range(48):
        cats, dense, label = make_batch(100000 + i, batch_size)
        with torch.no_grad():
            metrics.update(model(cats, dense).sigmoid(), label)

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        cats, dense, label = make_batch(step, batch_size)
        logit = model(cats, dense)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        opt.zero_grad()
        loss.backward()
        opt.step()

        metrics.update(logit.detach().sigmoid(), label)
        if args.fix == "v2":
            stats = metrics.compute() if step % 50 == 0 else None
        else:
            stats = metrics.compute()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} auc {stats['auc']:.4f} "
                  f"cal {stats['calibration']:.3f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
