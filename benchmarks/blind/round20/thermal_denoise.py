"""Denoising of thermal camera frames: a small residual network, trained on L1 and structural similarity."""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

FIXES = ("separable", "banded")


def thermal_frames(count, side, gen):
    """Smooth scenes with warm spots and edges; noise that grows with the temperature."""
    coarse = torch.rand(count, 1, side // 16, side // 16, generator=gen)
    scene = 0.5 * F.interpolate(coarse, size=side, mode="bilinear", align_corners=False)
    marks = (torch.rand(count, 1, side // 4, side // 4, generator=gen) > 0.96).float()
    clean = (scene + 0.5 * F.interpolate(marks, scale_factor=4)).clamp(0, 1)
    noise = torch.randn(clean.shape, generator=gen) * (0.02 + 0.15 * clean.sqrt())
    return clean, (clean + noise).clamp(0, 1)


def gaussian(size, sigma):
    at = torch.arange(size) - size // 2
    g = torch.exp(-at.float() ** 2 / (2 * sigma**2))
    return g / g.sum()


class SSIM(nn.Module):
    """Structural similarity with a Gaussian window (Wang et al. 2004), mean over the image."""

    def __init__(self, channels=1, size=11, sigma=1.5, c1=0.01**2, c2=0.03**2):
        super().__init__()
        line = gaussian(size, sigma)
        window = line[:, None] @ line[None, :]
        self.register_buffer("window", window.expand(channels, 1, size, size).contiguous())
        self.channels, self.size, self.c1, self.c2 = channels, size, c1, c2

    def local(self, x):
        return F.conv2d(x, self.window, padding=self.size // 2, groups=self.channels)

    def forward(self, a, b):
        mu_a, mu_b = self.local(a), self.local(b)
        var_a, var_b = self.local(a * a) - mu_a**2, self.local(b * b) - mu_b**2
        cov = self.local(a * b) - mu_a * mu_b
        top = (2 * mu_a * mu_b + self.c1) * (2 * cov + self.c2)
        bottom = (mu_a**2 + mu_b**2 + self.c1) * (var_a + var_b + self.c2)
        return (top / bottom).mean()


class SeparableSSIM(SSIM):
    """The window is an outer product: 11 taps down and 11 across instead of 121."""

    def __init__(self, channels=1, size=11, sigma=1.5, **rest):
        super().__init__(channels, size, sigma, **rest)
        line = gaussian(size, sigma)
        self.register_buffer("down", line.view(1, 1, -1, 1).expand(channels, 1, size, 1).contiguous())
        self.register_buffer("across", line.view(1, 1, 1, -1).expand(channels, 1, 1, size).contiguous())

    def local(self, x):
        x = F.conv2d(x, self.down, padding=(self.size // 2, 0), groups=self.channels)
        return F.conv2d(x, self.across, padding=(0, self.size // 2), groups=self.channels)


class BandedSSIM(SSIM):
    """Both directions as products with a banded matrix of the image's side."""

    def local(self, x):
        if not hasattr(self, "band"):
            side, reach = x.shape[-1], self.size // 2
            lag = torch.arange(side)[None, :] - torch.arange(side)[:, None]
            line = gaussian(self.size, 1.5)
            self.band = torch.where(lag.abs() <= reach, line[(lag + reach).clamp(0, self.size - 1)], 0.0)
        return self.band @ x @ self.band.t()


class Denoiser(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.head = nn.Conv2d(4, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.tail = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x):
        h = F.relu(self.head(F.pixel_unshuffle(x, 2)))
        for conv in self.body:
            h = h + F.relu(conv(h))
        return x + F.pixel_shuffle(self.tail(h), 2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--fix", choices=FIXES)
    p.add_argument("--size", choices=("cpu", "small"), default="cpu")
    opt = p.parse_args()
    side, batch, width = (128, 3, 16) if opt.size == "cpu" else (32, 2, 8)

    gen = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    clean, noisy = thermal_frames(48, side, gen)
    net = Denoiser(width, 2)
    similarity = {None: SSIM, "separable": SeparableSSIM, "banded": BandedSSIM}[opt.fix]()
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    took, total = [], 0.0
    for step in range(opt.steps):
        start = time.perf_counter()
        pick = torch.randint(len(clean), (batch,), generator=gen)
        target = clean[pick]
        out = net(noisy[pick])
        loss = 0.2 * F.l1_loss(out, target) + 0.8 * (1 - similarity(out, target))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        took.append(time.perf_counter() - start)
        total += loss.item()
        if step % 20 == 0:
            print(f"{step:4d} loss {loss.item():.4f}")
    late = took[len(took) // 3:]
    print(f"mean loss {total / opt.steps:.6f}")
    print(f"mean step ms {1e3 * sum(late) / len(late):.3f}")


if __name__ == "__main__":
    main()
