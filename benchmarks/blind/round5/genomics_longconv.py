"""A long-convolution model of DNA.

Domain: genomics, training, bf16 autocast.
Why: each block filters every channel with its own 511 tap kernel by `conv1d(groups=channels)`. No tensor core serves a
     depthwise convolution; the generic kernels for it, and the one for the weight's gradient above all, reach a few
     percent of what the device can multiply or load. Nearly the whole step is in three kernels.
Trap: convolutions in bf16 look like the fast path, and the memory traffic looks small; neither wider types nor fusing
      anything around them would help.
Fixes: fft (the same filter as a product of spectra).
"""

import torch
from torch import nn
from torch.nn import functional as F

from common import Clock, arguments

WALLS = [["compute", "slow-kernels"]]
FIXES = ["fft"]
TRUTH_STEPS = 240


class LongFilter(nn.Module):
    def __init__(self, width, taps, fft):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 1, taps) / taps**0.5)
        self.taps, self.fft = taps, fft

    def forward(self, signal):
        if not self.fft:
            return F.conv1d(signal, self.weight, padding=self.taps // 2, groups=self.weight.shape[0])
        length = signal.shape[-1]
        size = 1 << (length + self.taps - 1).bit_length()
        with torch.autocast(signal.device.type, enabled=False):
            spectrum = torch.fft.rfft(signal.float(), size) * torch.fft.rfft(self.weight[:, 0].flip(-1), size)
            full = torch.fft.irfft(spectrum, size)
        return full[..., self.taps // 2 : self.taps // 2 + length].to(signal.dtype)


class Block(nn.Module):
    def __init__(self, width, taps, fft):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.filter = LongFilter(width, taps, fft)
        self.gate = nn.Linear(width, 2 * width)
        self.after = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        value, gate = self.gate(self.norm(x)).chunk(2, -1)
        mixed = self.filter(value.transpose(1, 2).contiguous()).transpose(1, 2)
        x = x + mixed * torch.sigmoid(gate)
        return x + self.mlp(self.after(x))


class GenomeModel(nn.Module):
    def __init__(self, width, layers, taps, fft):
        super().__init__()
        self.embed = nn.Embedding(8, width)
        self.blocks = nn.ModuleList(Block(width, taps, fft) for _ in range(layers))
        self.out = nn.Linear(width, 8)

    def forward(self, bases):
        x = self.embed(bases)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    width, layers, taps, length, batch = (384, 4, 511, 4096, 8) if args.gpu else (16, 2, 63, 512, 2)
    model = GenomeModel(width, layers, taps, args.fix == "fft").to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    genome = torch.randint(4, (2_000_000,), device=args.device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        start = torch.randint(len(genome) - length, (batch, 1), device=args.device)
        bases = genome[start + torch.arange(length, device=args.device)]
        hidden = torch.rand(bases.shape, device=args.device) < 0.15
        with torch.autocast(args.device.type, torch.bfloat16):
            logits = model(bases.masked_fill(hidden, 4))
        each = F.cross_entropy(logits.float().flatten(0, 1), bases.flatten(), reduction="none")
        loss = (each * hidden.flatten()).sum() / hidden.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 60 == 0:
            print(f"{step} {loss.item():.4f}", flush=True)
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
