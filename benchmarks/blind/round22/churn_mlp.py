"""Churn prediction on account tables: embeddings for the categoricals, MLP, AUC."""
import argparse
import time

import numpy as np
import torch
from torch import nn

CARD = [12, 5, 51, 3, 24, 9]


def make_table(rows, seed):
    rng = np.random.default_rng(seed)
    num = rng.normal(size=(rows, 24)).astype(np.float32)
    cat = np.stack([rng.integers(0, c, rows) for c in CARD], 1)
    z = num[:, 0] - 0.7 * num[:, 1] * num[:, 2] + 0.6 * (cat[:, 1] == 2) - 1
    y = (rng.random(rows) < 1 / (1 + np.exp(-z))).astype(np.float32)
    return torch.from_numpy(num), torch.from_numpy(cat), torch.from_numpy(y)


class ChurnNet(nn.Module):
    def __init__(self, d=8, h=128):
        super().__init__()
        self.emb = nn.Embedding(sum(CARD), d)
        self.register_buffer("off", torch.tensor([0] + list(np.cumsum(CARD)[:-1])))
        self.norm = nn.BatchNorm1d(24)
        self.mlp = nn.Sequential(
            nn.Linear(24 + d * len(CARD), h), nn.ReLU(),
            nn.Linear(h, h), nn.ReLU(),
            nn.Linear(h, 1))

    def forward(self, num, cat):
        e = self.emb(cat + self.off).flatten(1)
        return self.mlp(torch.cat([self.norm(num), e], 1)).squeeze(1)


def auc(score, y):
    order = torch.argsort(score)
    rank = torch.empty_like(score)
    rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = y.sum()
    neg = len(y) - pos
    return ((rank[y > 0].double().sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


@torch.no_grad()
def validate(net, table, chunk=4096):
    net.eval()
    num, cat, y = table
    score = torch.cat([net(n, c) for n, c in zip(num.split(chunk), cat.split(chunk))])
    net.train()
    return auc(score, y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=1024)
    ap.add_argument("--eval-every", type=int, default=5)
    ap.add_argument("--patience", type=int, default=10_000)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    if args.fix:
        args.eval_every = 100
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, valid = make_table(60_000, 1), make_table(20_000, 2)
    net = ChurnNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    crit = nn.BCEWithLogitsLoss()
    gen = torch.Generator().manual_seed(4)
    best, stale, durations = 0.0, 0, []
    for step in range(1, args.steps + 1):
        tick = time.perf_counter()
        i = torch.randint(0, len(train[2]), (args.batch,), generator=gen)
        loss = crit(net(train[0][i], train[1][i]), train[2][i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % args.eval_every == 0:
            score = validate(net, valid)
            stale = 0 if score > best else stale + 1
            best = max(best, score)
        durations.append(time.perf_counter() - tick)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f} best auc {best:.4f}")
        if stale > args.patience:
            break
    tail = durations[len(durations) // 2:]
    print(f"MEAN_STEP_MS {1e3 * float(np.mean(tail)):.2f}")


if __name__ == "__main__":
    main()
