"""DDPM on 2-D rings. Epsilon prediction, FiLM-conditioned residual MLP."""
import argparse
import math
import time

import torch
from torch import nn


def rings(n, gen):
    r = torch.randint(1, 4, (n,), generator=gen).float()
    a = torch.rand(n, generator=gen) * 2 * math.pi
    xy = torch.stack([r * a.cos(), r * a.sin()], 1)
    return (xy + 0.05 * torch.randn(n, 2, generator=gen)) / 2.2


class TimeEmbed(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("freq", torch.exp(-math.log(1e4) * torch.arange(d // 2) / (d // 2)))
        self.mlp = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))

    def forward(self, t):
        a = t[:, None].float() * self.freq
        return self.mlp(torch.cat([a.sin(), a.cos()], 1))


class Block(nn.Module):
    def __init__(self, d, dt):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.film = nn.Linear(dt, 2 * d)
        self.ff = nn.Sequential(nn.SiLU(), nn.Linear(d, d))

    def forward(self, x, e):
        scale, shift = self.film(e).chunk(2, 1)
        return x + self.ff(self.norm(x) * (1 + scale) + shift)


class Denoiser(nn.Module):
    def __init__(self, d=96, depth=3, dt=64):
        super().__init__()
        self.time = TimeEmbed(dt)
        self.inp = nn.Linear(2, d)
        self.blocks = nn.ModuleList([Block(d, dt) for _ in range(depth)])
        self.out = nn.Linear(d, 2)

    def forward(self, x, t):
        e, h = self.time(t), self.inp(x)
        for b in self.blocks:
            h = b(h, e)
        return self.out(h)


class Diffusion:
    def __init__(self, T, keep):
        self.T = T
        self.keep = keep
        self.cached = None

    def schedule(self):
        if self.cached is not None:
            return self.cached
        betas = torch.linspace(1e-4, 0.02, self.T)
        bar, prod = [], torch.ones(())
        for i in range(self.T):
            prod = prod * (1 - betas[i])
            bar.append(prod)
        bar = torch.stack(bar)
        out = bar.sqrt(), (1 - bar).sqrt()
        if self.keep:
            self.cached = out
        return out

    def loss(self, net, x0, gen):
        t = torch.randint(0, self.T, (len(x0),), generator=gen)
        eps = torch.randn(x0.shape, generator=gen)
        signal, noise = self.schedule()
        xt = signal[t, None] * x0 + noise[t, None] * eps
        return (net(xt, t) - eps).pow(2).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--timesteps", type=int, default=1000)
    p.add_argument("--fix", action="store_true")
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(1)
    net, ddpm = Denoiser(), Diffusion(args.timesteps, keep=args.fix)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, fused=True)
    hist = []
    for step in range(args.steps):
        s = time.perf_counter()
        loss = ddpm.loss(net, rings(args.batch, gen), gen)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hist.append(time.perf_counter() - s)
        if step % 20 == 19:
            print(f"step {step + 1} mse {loss.item():.5f}")
    tail = hist[len(hist) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
