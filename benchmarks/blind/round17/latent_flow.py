"""Flow matching on the latents of a pretrained image autoencoder: a wide residual MLP learns the velocity field."""
import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, expand):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expand * width)
        self.down = nn.Linear(expand * width, width)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x, cond):
        return x + self.down(F.silu(self.up(self.norm(x) + cond)))


class Velocity(nn.Module):
    def __init__(self, latent, width, depth, expand, classes):
        super().__init__()
        self.enter = nn.Linear(latent, width)
        self.label = nn.Embedding(classes, width)
        self.clock = nn.Linear(64, width)
        self.blocks = nn.ModuleList(Block(width, expand) for _ in range(depth))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, latent))
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(1000.0), 32)))

    def forward(self, x, t, y):
        angle = t * self.freqs
        cond = self.clock(torch.cat([angle.sin(), angle.cos()], 1)) + self.label(y)
        h = self.enter(x)
        for block in self.blocks:
            h = block(h, cond)
        return self.leave(h)


def latents(n, dim, classes):
    g = torch.Generator().manual_seed(12)
    y = torch.randint(classes, (n,), generator=g)
    basis = torch.randn(classes, 16, dim, generator=g) / 4
    means = torch.randn(classes, dim, generator=g)
    x = means[y]
    for c in range(classes):
        rows = (y == c).nonzero().squeeze(1)
        x[rows] += torch.randn(len(rows), 16, generator=g) @ basis[c]
    return (x - x.mean(0)) / x.std(0), y


def flow_loss(model, x1, y):
    t = torch.rand(len(x1), 1, device=x1.device)
    x0 = torch.randn_like(x1)
    xt = torch.lerp(x0, x1, t)
    return F.mse_loss(model(xt, t, y), x1 - x0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--fix", default="")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    gpu = args.device == "cuda"
    dim, width, depth, expand, batch = (1024, 4096, 6, 4, 8192) if gpu else (256, 512, 2, 4, 1024)
    torch.manual_seed(0)
    x, y = (v.to(args.device) for v in latents(16384, dim, 10))
    model = Velocity(dim, width, depth, expand, 10).to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.99), fused=True)
    amp = torch.autocast(args.device, dtype=torch.bfloat16, enabled=gpu)
    for step in range(args.steps):
        if step == args.steps // 3:
            if gpu:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        rows = torch.randint(len(x), (batch,), device=args.device)
        with amp:
            loss = flow_loss(model, x[rows], y[rows])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    if gpu:
        torch.cuda.synchronize()
    spent = time.perf_counter() - t0
    print(f"loss {loss.item():.4f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
