"""Decode latents into pictures tile by tile, with the memory given back after every block "to be safe".

Domain: diffusion (image serving), own VAE decoder, bf16 channels_last, inference.
Why: a patch for small cards calls `torch.cuda.empty_cache()` after each residual block of each tile. Every call waits
    for the device, returns all free memory to the driver, and the next block has to ask for it again: 32 rounds of
    cudaFree and cudaMalloc a picture, during which no kernel runs.
Trap: the empty device right after each block looks like a synchronisation or like a slow host; the card has room for a
    hundred times what the job needs. Group norms and SiLU are unfused, and small beside it.
Fixes: keep-cache (no empty_cache: the allocator serves every tile from the blocks of the one before).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Clock, arguments

WALLS = [["overhead", "allocator"]]
FIXES = ["keep-cache"]
TRUTH_STEPS = 350


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(16, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(16, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Stage(nn.Module):
    def __init__(self, inputs, outputs, grow):
        super().__init__()
        self.one, self.two, self.grow = Residual(inputs, outputs), Residual(outputs, outputs), grow

    def forward(self, x, after_block):
        x = self.one(x)
        after_block()
        x = self.two(x)
        after_block()
        return F.interpolate(x, scale_factor=2.0, mode="nearest") if self.grow else x


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Conv2d(4, 4 * width, 3, padding=1)
        self.stages = nn.ModuleList([Stage(4 * width, 4 * width, True), Stage(4 * width, 2 * width, True),
                                     Stage(2 * width, width, True), Stage(width, width, False)])
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, tile, after_block):
        x = self.enter(tile)
        for stage in self.stages:
            x = stage(x, after_block)
        return self.leave(F.silu(x)).clamp(-1, 1)


def free_memory():
    torch.cuda.empty_cache()  # does nothing without a GPU


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    side, width = (128, 64) if args.gpu else (16, 16)
    half = side // 2

    kind = dict(device=args.device, dtype=torch.bfloat16 if args.gpu else torch.float32)
    model = Decoder(width).to(**kind).to(memory_format=torch.channels_last).eval()
    latents = [torch.randn(1, 4, side, side, **kind).contiguous(memory_format=torch.channels_last) for _ in range(8)]
    picture = torch.zeros(1, 3, 8 * side, 8 * side, **kind)
    after_block = (lambda: None) if args.fix == "keep-cache" else free_memory

    brightness = torch.zeros((), device=args.device)
    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            latent = latents[step % 8]
            for top in (0, half):
                for left in (0, half):
                    tile = model(latent[:, :, top:top + half, left:left + half], after_block)
                    picture[:, :, 8 * top:8 * (top + half), 8 * left:8 * (left + half)] = tile
            brightness.lerp_(picture.float().mean(), 0.1)
            if step % 50 == 49:
                print(f"picture {step + 1} brightness {brightness.item():.4f}", flush=True)
            clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
