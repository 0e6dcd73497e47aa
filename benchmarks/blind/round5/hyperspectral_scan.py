"""Mineral maps from hyperspectral flight lines.

Domain: earth observation, batch inference, plain loop.
Why: every step moves half a gigabyte of float32 cube from ordinary (pageable) host memory and the spectral network on the
     device needs a couple of milliseconds for it: the device waits for the copy, which runs at a fifth of the link.
Trap: the class map comes back with `.cpu()` at the end of every step (a few hundred kilobytes), so the step ends in a
      synchronisation that looks guilty; the first kernel on the device is a cast of the whole cube.
Fixes: pinned (the flight lines lie in pinned memory and the copy is non-blocking).
"""

import torch
from torch import nn

from common import Clock, arguments

WALLS = [["data", "copy-exposed"]]
FIXES = ["pinned"]
TRUTH_STEPS = 200


class SpectralNet(nn.Module):
    def __init__(self, bands, width=128, classes=24):
        super().__init__()
        self.mix = nn.Conv2d(bands, width, 1)
        self.near = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, cube):
        hidden = torch.relu(self.mix(cube))
        hidden = hidden + torch.relu(self.near(hidden))
        return self.out(hidden)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    tiles, bands, side = (12, 200, 224) if args.gpu else (1, 24, 64)
    dtype = torch.bfloat16 if args.gpu else torch.float32
    lines = [torch.rand(tiles, bands, side, side) for _ in range(4 if args.gpu else 2)]
    pinned = args.fix == "pinned" and args.gpu
    if pinned:
        lines = [line.pin_memory() for line in lines]
    model = SpectralNet(bands).to(args.device, dtype).eval()
    seen = torch.zeros(24, dtype=torch.long)

    clock = Clock(args.steps)
    with torch.inference_mode():
        for step in range(args.steps):
            cube = lines[step % len(lines)].to(args.device, non_blocking=pinned)
            minerals = model(cube.to(dtype)).argmax(1).to(torch.uint8).cpu()
            if step % 50 == 0:
                seen += torch.bincount(minerals.flatten().long(), minlength=24)
            clock.tick()
    print("pixels counted", int(seen.sum()), flush=True)
    clock.report()


if __name__ == "__main__":
    main()
