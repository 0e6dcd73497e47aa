"""Electric load forecasting with long convolutions: ten weeks of half-hours in, the next two days out."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WINDOW, HORIZON = 3360, 96


class DecayKernel(nn.Module):
    """Implicit filter: a small network over positions, times an exponential decay for each channel."""

    def __init__(self, channels, length, bands=16, width=32):
        super().__init__()
        t = torch.linspace(0, 1, length)[:, None]
        freq = torch.linspace(1, 120, bands)[None]
        self.register_buffer("code", torch.cat([t, torch.sin(freq * t), torch.cos(freq * t)], 1))
        self.register_buffer("t", t)
        self.mlp = nn.Sequential(nn.Linear(2 * bands + 1, width), nn.Tanh(), nn.Linear(width, channels))
        self.rate = nn.Parameter(torch.linspace(1, 4, channels))

    def forward(self):
        return (self.mlp(self.code) * torch.exp(-self.t * self.rate.exp())).t() / 10


class LongConv(nn.Module):
    def __init__(self, channels, length, pad):
        super().__init__()
        self.kernel, self.pad = DecayKernel(channels, length), pad
        self.skip = nn.Parameter(torch.randn(channels))

    def forward(self, u):
        """Causal convolution of u [batch, channels, time] with a filter as long as the window."""
        k = self.kernel()
        n = self.pad(u.shape[-1] + k.shape[-1] - 1)
        y = torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n)
        return y[..., :u.shape[-1]] + u * self.skip[:, None]


def smooth_size(n):
    """The next size whose prime factors are 2, 3 and 5."""
    while True:
        m = n
        for p in (2, 3, 5):
            while m % p == 0:
                m //= p
        if m == 1:
            return n
        n += 1


PADS = {"": lambda n: n, "size235": smooth_size, "pow2": lambda n: 1 << (n - 1).bit_length()}


class Stage(nn.Module):
    def __init__(self, channels, length, pad):
        super().__init__()
        self.conv = LongConv(channels, length, pad)
        self.mix = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x):
        return x + F.glu(self.mix(F.relu(self.conv(x))), dim=1)


class LoadForecaster(nn.Module):
    def __init__(self, channels, depth, pad):
        super().__init__()
        self.lift = nn.Conv1d(3, channels, 1)
        self.stages = nn.Sequential(*[Stage(channels, WINDOW, pad) for _ in range(depth)])
        self.head = nn.Linear(channels * 14, HORIZON)

    def forward(self, x):
        h = self.stages(self.lift(x))
        return self.head(F.adaptive_avg_pool1d(h, 14).flatten(1))


def meters(n_series, n_days, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(n_days * 48, dtype=np.float32)
    day, week = np.sin(2 * np.pi * t / 48), np.sin(2 * np.pi * t / 336)
    a, b = rng.random((2, n_series, 1), dtype=np.float32)
    load = a * day + b * week + 0.1 * rng.standard_normal((n_series, t.size), dtype=np.float32)
    clock = np.broadcast_to(np.stack([day, week]), (n_series, 2, t.size))
    return torch.from_numpy(np.concatenate([load[:, None], clock], 1).astype(np.float32))


def sampler(series, batch, rng):
    n, _, t = series.shape
    offsets = torch.arange(WINDOW + HORIZON, device=series.device)
    while True:
        who = torch.from_numpy(rng.integers(0, n, batch)).to(series.device)
        start = torch.from_numpy(rng.integers(0, t - WINDOW - HORIZON, batch)).to(series.device)
        rows = series[who[:, None], :, start[:, None] + offsets].transpose(1, 2)
        yield rows[..., :WINDOW].contiguous(), rows[:, 0, WINDOW:].contiguous()


def fit(args):
    torch.manual_seed(3)
    cuda = args.device == "cuda"
    channels, depth, batch, n_series = (256, 8, 64, 400) if cuda else (16, 2, 8, 60)
    stream = sampler(meters(n_series, 365).to(args.device), batch, np.random.default_rng(3))
    net = LoadForecaster(channels, depth, PADS[args.fix]).to(args.device)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, fused=True)
    skip, ema = args.steps // 3, None
    for step in range(args.steps):
        if step == skip:
            if cuda:
                torch.cuda.synchronize()
            tic = time.perf_counter()
        x, y = next(stream)
        loss = F.huber_loss(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema = loss.detach() if ema is None else ema.lerp(loss.detach(), 0.1)
        if step % 60 == 59:
            print(f"[{step + 1}] huber {ema.item():.5f}")
    if cuda:
        torch.cuda.synchronize()
    toc = time.perf_counter()
    print(f"end huber {ema.item():.6f}")
    print(f"mean step ms {(toc - tic) / (args.steps - skip) * 1e3:.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--fix", default="", choices=sorted(PADS))
    fit(ap.parse_args())
