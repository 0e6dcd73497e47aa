"""Churn prediction on a customer table: numeric columns through quantile bins, categorical columns embedded, residual MLP."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset

CARDS = (12, 7, 4, 30, 52, 3, 9, 120, 16, 5)
N_NUM = 14


def customer_table(rows, seed=0):
    rng = np.random.default_rng(seed)
    num = rng.lognormal(1.0, 1.2, (rows, N_NUM)).astype(np.float32)
    num[rng.random(num.shape) < 0.05] = np.nan
    cat = np.stack([rng.integers(0, c, rows) for c in CARDS], 1)
    logit = np.nan_to_num(np.log(num[:, 0])) - 0.5 * (cat[:, 3] % 3) + 0.3 * rng.standard_normal(rows)
    return num, cat, (logit > 1.0).astype(np.float32)


class Scaler:
    """Log, standardise, and a flag for what was missing."""

    def __init__(self, num):
        logged = np.log1p(num)
        self.mean, self.std = np.nanmean(logged, 0), np.nanstd(logged, 0)

    def __call__(self, num):
        missing = np.isnan(num)
        z = (np.log1p(num) - self.mean) / self.std
        return np.where(missing, 0, z).astype(np.float32), missing.astype(np.float32)


class ChurnRows(Dataset):
    def __init__(self, num, cat, label, scaler):
        self.num, self.cat, self.label, self.scaler = num, cat, label, scaler

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        z, missing = self.scaler(self.num[i])
        return {
            "num": torch.from_numpy(z),
            "missing": torch.from_numpy(missing),
            "cat": torch.from_numpy(self.cat[i]),
            "label": torch.tensor(self.label[i]),
        }


class ChurnBlocks(IterableDataset):
    """The same table scaled once; whole shuffled batches are cut from it."""

    def __init__(self, num, cat, label, scaler, batch):
        z, missing = scaler(num)
        self.columns = {k: torch.from_numpy(v) for k, v in dict(num=z, missing=missing, cat=cat, label=label).items()}
        self.batch, self.rows = batch, len(label)

    def __iter__(self):
        for rows in torch.randperm(self.rows)[:self.rows // self.batch * self.batch].view(-1, self.batch):
            yield {k: v[rows] for k, v in self.columns.items()}


class Residual(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Dropout(drop), nn.Linear(width, width))

    def forward(self, x):
        return x + self.body(x)


class ChurnNet(nn.Module):
    def __init__(self, width, depth, emb=8):
        super().__init__()
        self.register_buffer("offset", torch.tensor((0,) + CARDS[:-1]).cumsum(0))
        self.emb = nn.Embedding(sum(CARDS), emb)
        self.inp = nn.Linear(2 * N_NUM + emb * len(CARDS), width)
        self.blocks = nn.Sequential(*[Residual(width, 0.1) for _ in range(depth)])
        self.out = nn.Linear(width, 1)

    def forward(self, num, missing, cat):
        e = self.emb(cat + self.offset).flatten(1)
        return self.out(self.blocks(self.inp(torch.cat([num, missing, e], 1)))).squeeze(1)


class Trainer:
    def __init__(self, model, loader, device):
        self.model, self.loader, self.device = model.to(device), loader, device
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-3, weight_decay=1e-2, fused=True)
        self.seen, self.loss_sum = 0, torch.zeros((), device=device)

    def step(self, batch):
        batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
        label = batch.pop("label")
        loss = F.binary_cross_entropy_with_logits(self.model(**batch), label)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.loss_sum += loss.detach()
        self.seen += 1

    def fit(self, steps):
        warm, begin = steps // 3, 0.0
        while True:
            for batch in self.loader:
                self.step(batch)
                if self.seen == warm:
                    begin = self.now()
                if self.seen == steps:
                    return (self.now() - begin) / (steps - warm)

    def now(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--fix", default="", choices=("", "blocks", "workers"))
    args = ap.parse_args()
    rows, batch, width, depth = (1_000_000, 8192, 2048, 6) if args.device == "cuda" else (150_000, 1024, 192, 2)
    torch.manual_seed(0)
    table = customer_table(rows)
    scaler, pin = Scaler(table[0]), args.device == "cuda"
    if args.fix == "blocks":
        loader = DataLoader(ChurnBlocks(*table, scaler, batch), batch_size=None, pin_memory=pin)
    else:
        workers = dict(num_workers=2, persistent_workers=True) if args.fix == "workers" else {}
        loader = DataLoader(ChurnRows(*table, scaler), batch, shuffle=True, drop_last=True, pin_memory=pin, **workers)
    trainer = Trainer(ChurnNet(width, depth), loader, args.device)
    per_step = trainer.fit(args.steps)
    print(f"mean loss {trainer.loss_sum.item() / trainer.seen:.5f}")
    print(f"mean step ms {per_step * 1e3:.3f}")


if __name__ == "__main__":
    main()
