"""Regresses forest canopy height from aerial feature maps with a large-kernel convolutional network: every
block mixes space with a 31x31 depthwise convolution and channels with a two-layer MLP."""

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["compute", "slow-kernels"]]
FIXES = {
    "fft": "the large depthwise convolution goes through the Fourier domain",
    "fused-adam": "AdamW in one fused kernel",
}
TRUTH_STEPS = 30


class LargeKernel(nn.Module):
    def __init__(self, width, kernel, fourier):
        super().__init__()
        self.kernel, self.fourier = kernel, fourier
        self.weight = nn.Parameter(torch.randn(width, 1, kernel, kernel) / kernel)

    def forward(self, x):
        half = self.kernel // 2
        if not self.fourier:
            return F.conv2d(x, self.weight, padding=half, groups=x.shape[1])
        height, width = x.shape[-2:]
        size = [-(-(n + self.kernel - 1) // 16) * 16 for n in (height, width)]
        with torch.autocast(x.device.type, enabled=False):
            padded = F.pad(x.float(), (half, half, half, half))
            spectrum = torch.fft.rfft2(padded, s=size)
            taps = torch.fft.rfft2(self.weight.float().squeeze(1), s=size)
            mixed = torch.fft.irfft2(spectrum * taps.conj(), s=size)
        return mixed[..., :height, :width].to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, kernel, fourier):
        super().__init__()
        self.before = nn.BatchNorm2d(width)
        self.space = LargeKernel(width, kernel, fourier)
        self.after = nn.BatchNorm2d(width)
        self.up = nn.Conv2d(width, width * 4, 1)
        self.down = nn.Conv2d(width * 4, width, 1)

    def forward(self, x):
        x = x + self.space(self.before(x))
        return x + self.down(F.gelu(self.up(self.after(x))))


class CanopyNet(nn.Module):
    def __init__(self, bands, width, depth, kernel, fourier):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 4, stride=4)
        self.blocks = nn.Sequential(*[Block(width, kernel, fourier) for _ in range(depth)])
        self.height = nn.Conv2d(width, 1, 1)

    def forward(self, tiles):
        return F.softplus(self.height(self.blocks(self.stem(tiles)))).squeeze(1)


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(3)
    batch, side, width, depth, kernel = (16, 256, 256, 4, 31) if args.gpu else (2, 64, 8, 2, 7)
    model = CanopyNet(5, width, depth, kernel, args.fix == "fft").to(args.device)
    fused = True if args.fix == "fused-adam" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05, fused=fused)

    tiles = torch.randn(batch * 4, 5, side, side, device=args.device)
    heights = 30 * torch.rand(batch * 4, side // 4, side // 4, device=args.device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        first = (step % 4) * batch
        with torch.autocast(args.device.type, dtype=torch.bfloat16):
            predicted = model(tiles[first : first + batch])
        loss = F.l1_loss(predicted.float(), heights[first : first + batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
