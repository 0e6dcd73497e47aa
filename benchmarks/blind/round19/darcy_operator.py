"""Learns the solution operator of Darcy flow with a Galerkin transformer (attention without softmax).

Input: a two-valued permeability on a fine grid and the coordinates; output: the pressure. Keys and values are
layer-normalised per head and attention is their inner product over all grid points, divided by the number of points.
"""

import math

import torch
from common import Clock, arguments
from torch import nn

FIXES = ["keys-first", "fused-adam"]
STEPS = 24


class GalerkinAttention(nn.Module):
    def __init__(self, width, heads, fix):
        super().__init__()
        self.heads, self.fix = heads, fix
        self.to_qkv = nn.Linear(width, 3 * width)
        self.norm_k, self.norm_v = nn.LayerNorm(width // heads), nn.LayerNorm(width // heads)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, width = x.shape
        q, k, v = self.to_qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = self.norm_k(k), self.norm_v(v)
        if self.fix == "keys-first":
            y = q @ (k.transpose(-2, -1) @ v / n)
        else:
            scores = q @ k.transpose(-2, -1) / n
            y = scores @ v
        return self.out(y.transpose(1, 2).reshape(b, n, width))


class Layer(nn.Module):
    def __init__(self, width, heads, fix):
        super().__init__()
        self.attention = GalerkinAttention(width, heads, fix)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.feed(self.norm(x))


class Operator(nn.Module):
    def __init__(self, width, heads, layers, fix):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(Layer(width, heads, fix) for _ in range(layers))
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, permeability, grid):
        x = self.lift(torch.cat([permeability[..., None], grid.expand(len(permeability), -1, -1)], -1))
        for layer in self.layers:
            x = layer(x)
        return self.project(x)[..., 0]


def fields(count, side, generator):
    """Thresholded Gaussian random fields, and a smooth pressure-like response of each by spectral division."""
    wave = torch.fft.fftfreq(side, 1 / side)
    k2 = wave[:, None] ** 2 + wave[None, : side // 2 + 1] ** 2
    noise = torch.fft.rfft2(torch.randn(count, side, side, generator=generator))
    smooth = torch.fft.irfft2(noise * (k2 + 9) ** -1.0, s=(side, side))
    permeability = torch.where(smooth > 0, 12.0, 3.0)
    source = torch.fft.rfft2(1 / permeability - (1 / permeability).mean((1, 2), keepdim=True))
    pressure = torch.fft.irfft2(source / (4 * math.pi**2 * (k2 + 1)), s=(side, side))
    pressure = pressure / pressure.std()
    return (permeability.flatten(1) - 7.5) / 4.5, pressure.flatten(1)


def main():
    args = arguments(STEPS, FIXES)
    torch.manual_seed(4)
    torch.set_float32_matmul_precision("high")
    samples, side, batch, width, heads, layers = (64, 88, 4, 128, 4, 6) if args.gpu else (6, 12, 2, 32, 2, 2)
    generator = torch.Generator().manual_seed(4)
    permeability, pressure = (t.to(args.device) for t in fields(samples, side, generator))
    line = torch.linspace(0, 1, side, device=args.device)
    grid = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(1, -1, 2)

    model = Operator(width, heads, layers, args.fix).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True if args.fix == "fused-adam" else None)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=max(args.steps, 50))
    draws = torch.Generator(args.device).manual_seed(4)
    clock = Clock(args.steps)
    for _ in range(args.steps):
        pick = torch.randint(samples, (batch,), generator=draws, device=args.device)
        predicted, wanted = model(permeability[pick], grid), pressure[pick]
        loss = ((predicted - wanted).norm(dim=1) / wanted.norm(dim=1)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        clock.tick()
    clock.report()
    print(f"relative L2 {loss.item():.6f}")


if __name__ == "__main__":
    main()
