"""A conditional denoiser under torch.compile; the weighted loss next to it is eager, AdamW is as it comes.

Truth: the device, at several things. The compiled matmuls carry about half and are near what the
card gives; what can still be had is the eager loss (a dozen fp32 passes each way over the whole output,
about 2 ms) and the optimizer's many passes over 100 million parameters (about 1.5 ms).

Fixes: compile_loss: the loss compiled too. fused: AdamW(fused=True).
"""

import torch
from stepclock import Step, device_of, main
from torch import nn

WALLS = [["compute", "at-the-roof"], ["bandwidth", "unfused-pointwise"]]
ALSO = [["bandwidth", "unfused-pointwise"], ["bandwidth", "unfused-optimizer"]]
FIXES = ["compile_loss", "fused"]
COMPILED = [None, "compile_loss"]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Linear(width, 2 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        scale, shift = self.scale(given)[:, None].chunk(2, -1)
        return x + self.down(nn.functional.silu(self.up(self.norm(x) * (1 + scale) + shift)))


class Denoiser(nn.Module):
    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.given = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        given = self.given(label)
        for block in self.blocks:
            x = block(x, given)
        return x


def loss_of(out: torch.Tensor, noise: torch.Tensor, snr: torch.Tensor) -> torch.Tensor:
    out = out.float()
    weight = (snr.clamp(max=5.0) / snr)[:, None, None]
    error = out - noise
    huber = torch.sqrt(error * error + 1e-3) - 0.03
    smooth = (error[:, 1:] - error[:, :-1]).abs().mean()
    angle = 1 - (out * noise).sum(-1) / (out.norm(dim=-1) * noise.norm(dim=-1) + 1e-6)
    return (weight * huber).mean() + 0.1 * smooth + 0.1 * angle.mean()


def make(size: str, fix: str | None = None) -> Step:
    device = device_of(size)
    batch, length, width, depth, classes = (128, 256, 1024, 4, 65536) if size == "gpu" else (2, 8, 32, 1, 16)
    model = Denoiser(width, depth, classes).to(device)
    compiled = torch.compile(model)
    criterion = torch.compile(loss_of) if fix == "compile_loss" else loss_of
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fix == "fused" or None)
    x = torch.randn(batch, length, width, device=device)
    noise = torch.randn(batch, length, width, device=device)
    label = torch.randint(classes, (batch,), device=device)
    snr = torch.rand(batch, device=device) * 20 + 0.01

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            out = compiled(x, label)
        criterion(out, noise, snr).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(make)
