"""Day-ahead load forecast: doubly residual MLP stack over a week of hourly history."""
import argparse
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


def meters(n_series, hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6, (n_series, 1)))
    weekly = 0.4 * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6, (n_series, 1)))
    level = rng.uniform(5, 50, (n_series, 1))
    return level * (2 + daily + weekly + 0.15 * rng.normal(size=(n_series, hours)))


class Windows:
    def __init__(self, raw, history, horizon, seed, dtype=None):
        mu, sd = raw.mean(1, keepdims=True), raw.std(1, keepdims=True)
        z = (raw - mu) / sd
        hour = np.arange(raw.shape[1]) % 24
        cal = np.stack([np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24)])
        self.z, self.cal = torch.from_numpy(z), torch.from_numpy(cal)
        if dtype is not None:
            self.z, self.cal = self.z.to(dtype), self.cal.to(dtype)
        self.h, self.f = history, horizon
        self.rng = np.random.default_rng(seed)

    def sample(self, n):
        s = torch.from_numpy(self.rng.integers(0, self.z.shape[0], n))
        t = torch.from_numpy(self.rng.integers(0, self.z.shape[1] - self.h - self.f, n))
        pos = t[:, None] + torch.arange(self.h + self.f)
        z = self.z[s[:, None], pos]
        x = torch.cat([z[:, :self.h], self.cal[:, t + self.h].T], 1)
        return x, z[:, self.h:]


class Block(nn.Module):
    def __init__(self, d_in, h, horizon):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(d_in, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.back, self.fore = nn.Linear(h, d_in), nn.Linear(h, horizon)

    def forward(self, x):
        h = self.stem(x)
        return x - self.back(h), self.fore(h)


class BasisFree(nn.Module):
    def __init__(self, d_in, h=320, blocks=3, horizon=24):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d_in, h, horizon) for _ in range(blocks)])

    def forward(self, x):
        total = 0
        for b in self.blocks:
            x, y = b(x)
            total = total + y
        return total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--history", type=int, default=168)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    raw = meters(64, 24 * 365, 0)
    net = BasisFree(args.history + 2)
    if args.fix:
        data = Windows(raw, args.history, 24, 1, dtype=torch.float32)
    else:
        data = Windows(raw, args.history, 24, 1)
        net = net.double()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    times = []
    for k in range(1, args.steps + 1):
        t0 = time.perf_counter()
        x, y = data.sample(args.batch)
        loss = F.smooth_l1_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if k % 20 == 0:
            print(f"[{k}] huber {loss.item():.5f}")
    print(f"MEAN_STEP_MS {1e3 * np.mean(times[len(times) // 2:]):.2f}")


if __name__ == "__main__":
    main()
