"""Denoising diffusion in a latent space with a residual MLP and averaged weights."""
import argparse
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(t, dim):
    freq = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    a = t[:, None].float() * freq[None]
    return torch.cat([a.cos(), a.sin()], 1)


class ResBlock(nn.Module):
    def __init__(self, dim, t_dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.a = nn.Linear(dim, dim)
        self.t = nn.Linear(t_dim, dim)
        self.b = nn.Linear(dim, dim)

    def forward(self, x, temb):
        h = F.silu(self.a(self.norm(x)) + self.t(temb))
        return x + self.b(h)


class Denoiser(nn.Module):
    def __init__(self, latent=64, dim=1024, blocks=5, t_dim=128):
        super().__init__()
        self.t_dim = t_dim
        self.inp = nn.Linear(latent, dim)
        self.blocks = nn.ModuleList(ResBlock(dim, t_dim) for _ in range(blocks))
        self.out = nn.Linear(dim, latent)

    def forward(self, x, t):
        temb = timestep_embedding(t, self.t_dim)
        h = self.inp(x)
        for blk in self.blocks:
            h = blk(h, temb)
        return self.out(h)


class AveragedModel:
    def __init__(self, model, decay=0.999, new_form=False):
        self.decay = decay
        self.new_form = new_form
        self.shadow = copy.deepcopy(model.state_dict())

    @torch.no_grad()
    def update(self, model):
        state = model.state_dict()
        if self.new_form:
            for k, v in self.shadow.items():
                v.lerp_(state[k], 1 - self.decay)
        else:
            current = copy.deepcopy(state)
            for k in self.shadow:
                self.shadow[k] = self.decay * self.shadow[k] + (1 - self.decay) * current[k]


def latents(n, dim, seed=0):
    g = torch.Generator().manual_seed(seed)
    modes = torch.randn(12, dim, generator=g)
    return modes[torch.randint(0, 12, (n,), generator=g)] + 0.2 * torch.randn(n, dim, generator=g)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    data = latents(8192, 64)
    model = Denoiser()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    ema = AveragedModel(model, new_form=args.fix == "v2")
    alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        x0 = data[torch.randint(0, len(data), (16,))]
        t = torch.randint(0, 1000, (len(x0),))
        ab = alpha_bar[t][:, None]
        noise = torch.randn_like(x0)
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        loss = F.mse_loss(model(xt, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    avg = sum(v.abs().mean().item() for v in ema.shadow.values())
    print(f"final loss {loss.item():.6f} shadow {avg:.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
