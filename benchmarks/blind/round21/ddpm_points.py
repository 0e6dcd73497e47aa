"""DDPM on 2-D point clouds (two moons), epsilon prediction."""
import argparse
import math
import time

import torch
from torch import nn

torch.set_num_threads(1)


def moons(n, gen):
    th = math.pi * torch.rand(n, generator=gen)
    up = torch.rand(n, generator=gen) < 0.5
    x = torch.where(up, torch.cos(th), 1 - torch.cos(th))
    y = torch.where(up, torch.sin(th), 0.5 - torch.sin(th))
    return torch.stack([x - 0.5, y - 0.25], 1) * 1.5


class Schedule:
    def __init__(self, T=400, fix=False):
        self.T = T
        self.beta = torch.linspace(1e-4, 0.03, T)
        self.alpha = 1 - self.beta
        self.table = torch.cumprod(self.alpha, 0) if fix else None

    def alpha_bar(self, t):
        if self.table is not None:
            return self.table[t]
        return torch.stack([self.alpha[: k + 1].prod() for k in t])

    def q_sample(self, x0, t, eps):
        ab = self.alpha_bar(t)[:, None]
        return ab.sqrt() * x0 + (1 - ab).sqrt() * eps


class Denoiser(nn.Module):
    def __init__(self, dim=96, freqs=16):
        super().__init__()
        self.register_buffer("w", torch.exp(torch.linspace(0, math.log(200), freqs)))
        self.inp = nn.Linear(2 + 2 * freqs, dim)
        self.hid = nn.ModuleList(nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, 2)

    def forward(self, x, t):
        a = t[:, None] * self.w
        h = self.inp(torch.cat([x, a.sin(), a.cos()], 1))
        for layer in self.hid:
            h = h + layer(nn.functional.silu(h))
        return self.out(nn.functional.silu(h))


def main(args):
    gen = torch.Generator().manual_seed(21)
    torch.manual_seed(21)
    data = moons(8192, gen)
    sched, net = Schedule(fix=args.fix), Denoiser()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    laps, ema = [], 1.0
    for step in range(args.steps):
        t0 = time.perf_counter()
        x0 = data[torch.randint(0, len(data), (args.batch,), generator=gen)]
        t = torch.randint(0, sched.T, (args.batch,), generator=gen)
        eps = torch.randn(x0.shape, generator=gen)
        pred = net(sched.q_sample(x0, t, eps), t / sched.T)
        loss = (pred - eps).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema = 0.98 * ema + 0.02 * loss.item()
        laps.append(time.perf_counter() - t0)
        if step % 250 == 0:
            print(f"{step:>6} mse {ema:.4f}")
    laps = laps[len(laps) // 3:]
    print(f"loss {ema:.5f}")
    print(f"mean step ms {1e3 * sum(laps) / len(laps):.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--fix", action="store_true")
    main(ap.parse_args())
