import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

SEQ, HORIZON = 96, 24


def synthetic_load(n=17420, channels=7, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(n)[:, None]
    daily = np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6, channels))
    weekly = 0.5 * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6, channels))
    noise = 0.2 * rng.standard_normal((n, channels))
    return (30 + 10 * (daily + weekly + noise)).astype(np.float32)


class LoadDataset(Dataset):
    """Sliding windows over the training part, standardised per channel."""

    def __init__(self, series, n_train, fix=False):
        self.series = torch.from_numpy(series)
        self.n_train = n_train
        self.cached = None
        if fix:
            self.cached = self.stats()

    def stats(self):
        train = self.series[: self.n_train]
        return train.mean(0), train.std(0)

    def __len__(self):
        return self.n_train - SEQ - HORIZON + 1

    def __getitem__(self, i):
        mean, std = self.cached or self.stats()
        window = (self.series[i: i + SEQ + HORIZON] - mean) / std
        return window[:SEQ], window[SEQ:]


class DLinear(nn.Module):
    def __init__(self, channels, kernel=25):
        super().__init__()
        self.pool = nn.AvgPool1d(kernel, stride=1, padding=kernel // 2, count_include_pad=False)
        self.trend = nn.Linear(SEQ, HORIZON)
        self.season = nn.Sequential(nn.Linear(SEQ, 128), nn.ReLU(), nn.Linear(128, HORIZON))

    def forward(self, x):
        x = x.transpose(1, 2)
        trend = self.pool(x)
        return (self.trend(trend) + self.season(x - trend)).transpose(1, 2)


def cycle(loader):
    while True:
        yield from loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(7)
    ds = LoadDataset(synthetic_load(), 12 * 30 * 24, fix=args.fix)
    loader = DataLoader(ds, batch_size=32, shuffle=True, drop_last=True,
                        generator=torch.Generator().manual_seed(7))
    model = DLinear(7)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = cycle(loader)
    stamps = [time.perf_counter()]
    for step in range(args.steps):
        x, y = next(batches)
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        stamps.append(time.perf_counter())
        if (step + 1) % 200 == 0:
            print(f"step {step + 1} mse {loss.item():.4f}")
    d = np.diff(stamps)[args.steps // 3:]
    print(f"loss {loss.item():.5f}")
    print(f"mean step ms {d.mean() * 1e3:.3f}")


if __name__ == "__main__":
    main()
