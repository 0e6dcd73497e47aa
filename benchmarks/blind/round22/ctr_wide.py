"""Click model: hashed categorical fields + dense counters, Adagrad."""
import argparse
import time

import torch
from torch import nn


def get_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", default=400, type=int)
    p.add_argument("--batch-size", default=512, type=int)
    p.add_argument("--buckets", default=40_000, type=int)
    p.add_argument("--fields", default=10, type=int)
    p.add_argument("--dim", default=16, type=int)
    p.add_argument("--lr", default=0.02, type=float)
    p.add_argument("--fix", action="store_true")
    return p.parse_args()


class ClickModel(nn.Module):
    def __init__(self, fields, buckets, dim, n_dense=13, sparse=False):
        super().__init__()
        self.register_buffer("shift", torch.arange(fields) * buckets)
        self.table = nn.Embedding(fields * buckets, dim, sparse=sparse)
        nn.init.normal_(self.table.weight, std=0.05)
        self.bottom = nn.Sequential(nn.Linear(n_dense, 64), nn.ReLU(), nn.Linear(64, dim))
        pairs = (fields + 1) * fields // 2
        self.top = nn.Sequential(nn.Linear(pairs + dim, 128), nn.ReLU(), nn.Linear(128, 1))
        iu = torch.triu_indices(fields + 1, fields + 1, 1)
        self.register_buffer("flat", iu[0] * (fields + 1) + iu[1])

    def forward(self, cats, dense):
        d = self.bottom(dense)
        e = torch.cat([self.table(cats + self.shift), d.unsqueeze(1)], 1)
        inter = torch.bmm(e, e.transpose(1, 2)).flatten(1).index_select(1, self.flat)
        return self.top(torch.cat([inter, d], 1)).squeeze(1)


class ClickLog:
    def __init__(self, rows, fields, buckets, seed=7):
        g = torch.Generator().manual_seed(seed)
        u = torch.rand(rows, fields, generator=g)
        self.cats = (u.pow(3) * buckets).long()
        self.dense = torch.rand(rows, 13, generator=g).log1p()
        score = self.dense[:, 0] * 4 - 1.5 + (self.cats[:, 0] % 7 == 0).float()
        self.y = (torch.rand(rows, generator=g) < torch.sigmoid(score)).float()
        self.gen = g

    def batch(self, n):
        i = torch.randint(0, len(self.y), (n,), generator=self.gen)
        return self.cats[i], self.dense[i], self.y[i]


def main():
    args = get_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    log = ClickLog(100_000, args.fields, args.buckets)
    model = ClickModel(args.fields, args.buckets, args.dim, sparse=args.fix)
    opt = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    bce = nn.BCEWithLogitsLoss()
    running, times = 0.0, []
    for it in range(1, args.steps + 1):
        start = time.perf_counter()
        cats, dense, y = log.batch(args.batch_size)
        loss = bce(model(cats, dense), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running = 0.95 * running + 0.05 * loss.item() if it > 1 else loss.item()
        times.append(time.perf_counter() - start)
        if it % 20 == 0:
            print(f"iter {it} logloss {running:.5f}", flush=True)
    keep = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {sum(keep) / len(keep) * 1e3:.2f}")


if __name__ == "__main__":
    main()
