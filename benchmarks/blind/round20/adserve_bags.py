"""Click scores for ad requests: pooled embedding bags of a user's histories, a small MLP, batches of candidates."""
import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FIXES = ()


class Requests:
    """Candidates with 16 sparse features; each is a bag of ids, sorted in memory as the feature store sends them."""

    def __init__(self, rows, features, batch, seed=29):
        self.rows, self.features, self.batch = rows, features, batch
        self.rng = np.random.default_rng(seed)
        self.mean_size = self.rng.integers(1, 40, size=features)

    def next(self):
        """Ids of all bags one after the other, where each begins, and the dense inputs."""
        sizes = self.rng.poisson(np.repeat(self.mean_size, self.batch)) + 1
        begin = np.zeros(len(sizes), dtype=np.int64)
        np.cumsum(sizes[:-1], out=begin[1:])
        feature = np.repeat(np.repeat(np.arange(self.features), self.batch), sizes)
        ids = feature * self.rows + self.rng.integers(self.rows, size=sizes.sum())
        dense = self.rng.standard_normal((self.batch, 13), dtype=np.float32)
        return torch.from_numpy(ids), torch.from_numpy(begin), torch.from_numpy(dense)


class ClickModel(nn.Module):
    """All features share one big table of halves, feature after feature, so that one call pools every bag."""

    def __init__(self, rows, features, dim, hidden):
        super().__init__()
        self.features, self.dim = features, dim
        self.table = nn.Parameter(torch.empty(rows * features, dim, dtype=torch.half).uniform_(-0.1, 0.1))
        self.dense = nn.Linear(13, dim)
        self.mlp = nn.Sequential(nn.Linear((features + 1) * dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, ids, begin, dense):
        bags = F.embedding_bag(ids, self.table, begin, mode="sum")
        bags = bags.view(self.features, -1, self.dim).transpose(0, 1).flatten(1).float()
        return self.mlp(torch.cat([bags, F.relu(self.dense(dense))], 1)).squeeze(1)


def auction(score, slots):
    """The best candidates and what the winners pay: the score of the next one."""
    top, which = score.topk(slots + 1)
    return which[:slots].tolist(), top[1:].tolist()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--fix", choices=FIXES)
    ap.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = ap.parse_args()
    rows, features, dim, batch = (300_000, 16, 32, 5120) if args.size == "cpu" else (1000, 4, 8, 16)

    torch.manual_seed(19)
    requests = Requests(rows, features, batch)
    ready = [requests.next() for _ in range(8)]
    model = ClickModel(rows, features, dim, 64).eval().requires_grad_(False)
    took, paid, begun = [], 0.0, time.time()
    for step in range(args.steps):
        ids, begin, dense = ready[step % len(ready)]
        start = time.perf_counter()
        with torch.inference_mode():
            score = torch.sigmoid(model(ids, begin, dense))
            winners, price = auction(score, 5)
        took.append((time.perf_counter() - start) * 1e3)
        paid += sum(price) / len(winners) / args.steps
    late = took[args.steps // 3:]
    print(f"{args.steps / (time.time() - begun):.1f} requests a second, median {statistics.median(took):.2f} ms, "
          f"{len(ids)} ids in the last")
    print(f"mean price {paid:.6f}")
    print(f"mean step ms {statistics.fmean(late):.3f}")


if __name__ == "__main__":
    main()
