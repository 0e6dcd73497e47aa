"""Long-context multivariate forecaster: diagonal state-space layers applied as global convolutions (S4D-like)."""
import argparse
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    context: int = 4096
    channels: int = 7
    dim: int = 256
    modes: int = 4
    depth: int = 4
    batch: int = 16
    series: int = 60000


def causal_conv(u, k, smooth_size=False):
    """y_t = sum_{s<=t} k_{t-s} u_s, by FFT, zero-padded so that nothing wraps around."""
    L = u.size(-1)
    n = 2 * L if smooth_size else L + k.size(-1) - 1
    uf = torch.fft.rfft(u, n=n)
    kf = torch.fft.rfft(k, n=n)
    return torch.fft.irfft(uf * kf, n=n)[..., :L]


class SSMKernel(nn.Module):
    """k(t) = sum_m c_m exp(-a_m t) cos(w_m t + p_m) for each feature"""

    def __init__(self, dim, modes, length):
        super().__init__()
        self.log_a = nn.Parameter(torch.empty(dim, modes).uniform_(math.log(1e-3), math.log(0.3)))
        self.w = nn.Parameter(torch.empty(dim, modes).uniform_(0, math.pi / 4))
        self.p = nn.Parameter(torch.zeros(dim, modes))
        self.c = nn.Parameter(torch.randn(dim, modes) / modes)
        self.register_buffer("t", torch.arange(length).float(), persistent=False)

    def forward(self):
        t = self.t
        env = torch.exp(-self.log_a.exp()[..., None] * t)
        return (self.c[..., None] * env * torch.cos(self.w[..., None] * t + self.p[..., None])).sum(1)


class SSMBlock(nn.Module):
    def __init__(self, cfg, smooth_size):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.dim)
        self.kernel = SSMKernel(cfg.dim, cfg.modes, cfg.context)
        self.skip = nn.Parameter(torch.ones(cfg.dim))
        self.mix = nn.Linear(cfg.dim, 2 * cfg.dim)
        self.smooth_size = smooth_size

    def forward(self, x):
        u = self.norm(x).transpose(1, 2).float().contiguous()
        y = causal_conv(u, self.kernel(), self.smooth_size) + u * self.skip[:, None]
        y = F.gelu(y.transpose(1, 2))
        return x + F.glu(self.mix(y), dim=-1)


class Forecaster(nn.Module):
    def __init__(self, cfg, smooth_size):
        super().__init__()
        self.inp = nn.Linear(cfg.channels, cfg.dim)
        self.blocks = nn.ModuleList(SSMBlock(cfg, smooth_size) for _ in range(cfg.depth))
        self.out = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, cfg.channels))

    def forward(self, x):
        mu, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-4
        h = self.inp((x - mu) / sd)
        for b in self.blocks:
            h = b(h)
        return self.out(h).float() * sd + mu


def synth(cfg, gen):
    t = torch.arange(cfg.series).float()[:, None]
    period = torch.tensor([24.0, 168.0, 8760.0])
    amp = torch.rand(3, cfg.channels, generator=gen)
    s = sum(torch.sin(2 * math.pi * t / p + i) * amp[i] for i, p in enumerate(period))
    return s + 0.2 * torch.randn(cfg.series, cfg.channels, generator=gen)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fixes = set(filter(None, args.fix.split(",")))
    cfg = Config(context=256, dim=16, depth=2, batch=2, series=2000) if args.tiny else Config()
    cuda = not args.cpu
    device = "cuda" if cuda else "cpu"
    gen = torch.Generator().manual_seed(3)
    series = synth(cfg, gen).to(device)
    torch.manual_seed(3)
    model = Forecaster(cfg, "fft_size" in fixes).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=cuda)
    offsets = torch.arange(cfg.context + 1, device=device)

    def batch():
        at = torch.randint(cfg.series - cfg.context - 1, (cfg.batch, 1), generator=gen).to(device)
        w = series[at + offsets]
        return w[:, :-1], w[:, 1:]

    half = args.steps // 2
    for step in range(args.steps):
        if step == half:
            torch.cuda.synchronize() if cuda else None
            clock = time.perf_counter()
        x, y = batch()
        with torch.autocast(device, torch.bfloat16, enabled=cuda):
            pred = model(x)
        loss = F.huber_loss(pred, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    torch.cuda.synchronize() if cuda else None
    print(f"MEAN_STEP_MS {(time.perf_counter() - clock) / (args.steps - half) * 1e3:.3f}")
    print(f"huber {loss.item():.6f}")


if __name__ == "__main__":
    main()
