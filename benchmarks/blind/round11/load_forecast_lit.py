"""Day-ahead electricity load forecast for many meters: windows + calendar features, TCN, Lightning trainer."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L

PAST, AHEAD = 336, 48


def make_meters(n, hours):
    rng = np.random.default_rng(0)
    t = np.arange(hours, dtype=np.float32)
    day = np.sin(2 * np.pi * (t[None] / 24 + rng.random((n, 1))))
    week = np.sin(2 * np.pi * (t[None] / 168 + rng.random((n, 1))))
    return (5 + 2 * day + week + 0.3 * rng.standard_normal((n, hours))).astype(np.float32)


class MeterWindows(Dataset):
    def __init__(self, series, per_meter):
        self.series, self.per_meter = series, per_meter
        self.span = series.shape[1] - PAST - AHEAD - 1

    def __len__(self):
        return len(self.series) * self.per_meter

    def where(self, i):
        return i % len(self.series), (i * 2654435761) % self.span

    def __getitem__(self, i):
        m, s = self.where(i)
        x = self.series[m, s:s + PAST]
        y = self.series[m, s + PAST:s + PAST + AHEAD]
        mean, std = x.mean(), x.std() + 1e-3
        x = (x - mean) / std
        smooth = np.convolve(x, np.ones(24, dtype=np.float32) / 24, mode="same")
        diff = np.diff(x, prepend=x[0])
        hours = np.arange(s, s + PAST)
        feats = [x, smooth, diff]
        for period in (24, 168, 8766):
            feats += [np.sin(2 * np.pi * hours / period), np.cos(2 * np.pi * hours / period)]
        spikes = np.abs(x - np.median(x)) > 3
        feats.append(spikes)
        return {"x": torch.tensor(np.stack(feats), dtype=torch.float32),
                "y": torch.tensor((y - mean) / std)}


class WindowIds(MeterWindows):
    """Only says which window; the device cuts it out of the series."""

    def __getitem__(self, i):
        return self.where(i)


class TCN(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Conv1d(10, width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2 ** k, dilation=2 ** k) for k in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(depth))
        self.out = nn.Linear(width, AHEAD)

    def forward(self, x):
        h = self.inp(x)
        for c, n in zip(self.convs, self.norms):
            h = h + F.gelu(n(c(h)))
        return self.out(h.mean(-1))


class Forecaster(L.LightningModule):
    def __init__(self, width, depth, series=None):
        super().__init__()
        self.net = TCN(width, depth)
        self.register_buffer("series", None if series is None else torch.from_numpy(series), persistent=False)

    def cut(self, m, s):
        t = s[:, None] + torch.arange(PAST + AHEAD, device=s.device)
        w = self.series[m[:, None], t]
        x, y = w[:, :PAST], w[:, PAST:]
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True, correction=0) + 1e-3
        x, y = (x - mean) / std, (y - mean) / std
        smooth = F.avg_pool1d(F.pad(x[:, None], (12, 11)), 24, 1).squeeze(1)
        diff = torch.diff(x, dim=1, prepend=x[:, :1])
        f = [x, smooth, diff]
        for period in (24, 168, 8766):
            a = 2 * torch.pi * (t[:, :PAST] % period) / period
            f += [a.sin(), a.cos()]
        f.append(((x - x.median(1, keepdim=True).values).abs() > 3).float())
        return torch.stack(f, 1), y

    def training_step(self, batch, i):
        x, y = self.cut(*batch) if self.series is not None else (batch["x"], batch["y"])
        return F.smooth_l1_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


class Clock(L.Callback):
    def __init__(self, steps):
        self.first, self.steps, self.seen, self.t0 = steps - min(steps, max(3, steps // 3)), steps, 0, time.perf_counter()

    def now(self):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def on_train_batch_end(self, *a, **k):
        self.seen += 1
        if self.seen == self.first:
            self.t0 = self.now()
        if self.seen == self.steps:
            self.ms = (self.now() - self.t0) / (self.steps - self.first) * 1e3


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="workers, device_windows")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    torch.manual_seed(0)
    series = make_meters(8, 2000) if args.tiny else make_meters(370, 26304)
    bs = 8 if args.tiny else 256
    on_device = "device_windows" in fix
    ds = (WindowIds if on_device else MeterWindows)(series, 40 if args.tiny else 400)
    kw = {}
    if "workers" in fix:
        kw = dict(num_workers=2 if args.tiny else 12, persistent_workers=True, pin_memory=not args.cpu)
    loader = DataLoader(ds, batch_size=bs, shuffle=True, drop_last=True, **kw)
    width, depth = (16, 3) if args.tiny else (128, 7)
    module = Forecaster(width, depth, series if on_device else None)
    clock = Clock(args.steps)
    trainer = L.Trainer(max_steps=args.steps, max_epochs=-1, accelerator="cpu" if args.cpu else "gpu", devices=1,
                        precision="32-true" if args.cpu else "bf16-mixed", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[clock])
    trainer.fit(module, loader)
    print(f"MEAN_STEP_MS {clock.ms:.3f}")
