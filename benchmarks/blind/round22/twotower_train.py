"""Two-tower retrieval with in-batch negatives over hashed character trigrams."""
import argparse
import random
import re
import time
import zlib

import torch
import torch.nn.functional as F
from torch import nn

WORD = re.compile(r"[a-z0-9]+")
BUCKETS = 30_000


def make_corpus(n, seed=0):
    rnd = random.Random(seed)
    syl = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    lexicon = ["".join(rnd.choices(syl, k=rnd.randint(2, 4))) for _ in range(3000)]
    pairs = []
    for _ in range(n):
        topic = rnd.sample(lexicon, 8)
        doc = " ".join(rnd.choices(topic, k=20) + rnd.choices(lexicon, k=14)).capitalize() + "."
        pairs.append((" ".join(rnd.sample(topic, 4)) + "?", doc))
    return pairs


def trigrams(text):
    ids = []
    for w in WORD.findall(text.lower()):
        w = f"#{w}#"
        ids += [zlib.crc32(w[i:i + 3].encode()) % BUCKETS for i in range(len(w) - 2)]
    return torch.tensor(ids)


class Pairs:
    def __init__(self, corpus, upfront):
        self.corpus = corpus
        self.table = [(trigrams(q), trigrams(d)) for q, d in corpus] if upfront else None

    def ids(self, i):
        if self.table is not None:
            return self.table[i]
        q, d = self.corpus[i]
        return trigrams(q), trigrams(d)

    def collate(self, idx):
        rows = [self.ids(i) for i in idx]
        return [self.pack([r[k] for r in rows]) for k in (0, 1)]

    @staticmethod
    def pack(lists):
        size = torch.tensor([0] + [len(ids) for ids in lists[:-1]])
        return torch.cat(lists), size.cumsum(0)


class Tower(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, d, mode="mean", sparse=True)
        self.mlp = nn.Sequential(nn.Linear(d, 96), nn.ReLU(), nn.Linear(96, d))

    def forward(self, flat, offsets):
        return F.normalize(self.mlp(self.bag(flat, offsets)), dim=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--pairs", type=int, default=1500)
    ap.add_argument("--tau", type=float, default=0.07)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = Pairs(make_corpus(args.pairs), upfront=args.fix)
    qt, dt = Tower(), Tower()
    opt = torch.optim.SGD([*qt.parameters(), *dt.parameters()], lr=0.3)
    rnd = random.Random(1)
    target = torch.arange(args.batch)
    order, times = [], []
    for step in range(1, args.steps + 1):
        t0 = time.perf_counter()
        if len(order) < args.batch:
            order = rnd.sample(range(args.pairs), args.pairs)
        idx, order = order[:args.batch], order[args.batch:]
        q, d = data.collate(idx)
        loss = F.cross_entropy(qt(*q) @ dt(*d).T / args.tau, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 20 == 0:
            print(f"step {step} nce {loss.item():.5f}")
    tail = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
