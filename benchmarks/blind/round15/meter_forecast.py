"""Day-ahead forecasts for electricity meters: windows from long series, dilated conv network."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

METERS, READINGS = 16, 96 * 365 * 2
PAST, AHEAD = 96 * 3, 96


def make_meters(rng):
    t = np.arange(READINGS)
    day = np.sin(2 * np.pi * (t / 96 + rng.random((METERS, 1))))
    week = np.sin(2 * np.pi * (t / 672 + rng.random((METERS, 1))))
    level = np.exp(rng.normal(0, 1.5, (METERS, 1)))
    noise = rng.normal(0, 0.15, (METERS, READINGS))
    return (level * np.exp(0.8 * day + 0.3 * week + noise))


def standardise(values):
    logs = np.log1p(values)
    return (logs - logs.mean(-1, keepdims=True)) / (logs.std(-1, keepdims=True) + 1e-6)


class MeterWindows(Dataset):
    def __init__(self, values, upfront):
        self.values = standardise(values) if upfront else values
        self.upfront = upfront
        self.clock = np.stack([np.sin(2 * np.pi * np.arange(READINGS) / 96),
                               np.cos(2 * np.pi * np.arange(READINGS) / 96)]).astype(np.float32)
        self.per_meter = READINGS - PAST - AHEAD

    def __len__(self):
        return METERS * self.per_meter

    def series(self, meter):
        return self.values[meter] if self.upfront else standardise(self.values[meter])

    def __getitem__(self, index):
        meter, start = divmod(index, self.per_meter)
        series = self.series(meter)
        cut, end = start + PAST, start + PAST + AHEAD
        window = series[start:end].astype(np.float32)
        past = np.concatenate([window[None, :PAST], self.clock[:, start:cut]])
        return torch.from_numpy(past), torch.from_numpy(window[PAST:])


class Forecaster(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.inp = nn.Conv1d(3, c, 5, padding=2)
        self.convs = nn.ModuleList(
            nn.Conv1d(c, c, 3, padding=d, dilation=d) for d in (1, 2, 4, 8))
        self.head = nn.Linear(c * (PAST // 8), AHEAD)

    def forward(self, x):
        naive = x[:, 0, -AHEAD:]
        h = F.avg_pool1d(F.relu(self.inp(x)), 4)
        for conv in self.convs:
            h = h + F.relu(conv(h))
        return naive + self.head(F.avg_pool1d(h, 2).flatten(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--fix", action="store_true")
    ap.add_argument("--batch", type=int, default=128)
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)

    data = MeterWindows(make_meters(np.random.default_rng(6)), upfront=args.fix)
    sampler = RandomSampler(data, replacement=True, num_samples=args.steps * args.batch,
                            generator=torch.Generator().manual_seed(8))
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    model = Forecaster()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    t0 = time.perf_counter()
    for step, (past, ahead) in enumerate(loader):
        pred = model(past)
        loss = F.l1_loss(pred, ahead)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step} mae {loss.item():.5f}")
        t0 = time.perf_counter()
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
