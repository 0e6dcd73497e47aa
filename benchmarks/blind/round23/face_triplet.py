"""Metric learning with batch-hard triplet loss on synthetic identity features."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Embedder(nn.Module):
    def __init__(self, n_in=256, hidden=256, out=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                                 nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                                 nn.Linear(hidden, out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class BatchHardTriplet(nn.Module):
    def __init__(self, margin=0.3, new_form=False):
        super().__init__()
        self.margin = margin
        self.new_form = new_form

    def distances(self, e):
        if self.new_form:
            sq = e.pow(2).sum(1)
            d2 = sq[:, None] + sq[None, :] - 2 * e @ e.T
        else:
            diff = e.unsqueeze(0) - e.unsqueeze(1)
            d2 = diff.pow(2).sum(-1)
        return d2.clamp(min=1e-9).sqrt()

    def forward(self, e, labels):
        d = self.distances(e)
        same = labels[:, None] == labels[None, :]
        hardest_pos = (d * same).amax(1)
        hardest_neg = d.masked_fill(same, float("inf")).amin(1)
        return F.softplus((hardest_pos - hardest_neg + self.margin) * 5).mean() / 5


class PKSampler:
    """Batches of P identities with K samples each."""

    def __init__(self, labels, p, k, seed=0):
        self.by_id = [torch.nonzero(labels == c).flatten() for c in labels.unique()]
        self.p, self.k = p, k
        self.g = torch.Generator().manual_seed(seed)

    def batch(self):
        ids = torch.randperm(len(self.by_id), generator=self.g)[:self.p].tolist()
        picks = []
        for c in ids:
            pool = self.by_id[c]
            picks.append(pool[torch.randint(0, len(pool), (self.k,), generator=self.g)])
        return torch.cat(picks)


def identities(n_ids, per_id, dim):
    centers = torch.randn(n_ids, dim)
    labels = torch.arange(n_ids).repeat_interleave(per_id)
    return centers[labels] + 1.6 * torch.randn(len(labels), dim), labels


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    x, labels = identities(300, 20, 256)
    sampler = PKSampler(labels, p=40, k=8)
    model = Embedder()
    criterion = BatchHardTriplet(new_form=args.fix == "v2")
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        idx = sampler.batch()
        loss = criterion(model(x[idx]), labels[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f} lr {sched.get_last_lr()[0]:.2e}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
