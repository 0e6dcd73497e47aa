"""Segmentation of synthetic aerial tiles with a compact U-Net."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def double_conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, n_in=4, n_classes=5, ch=32):
        super().__init__()
        self.d1 = double_conv(n_in, ch)
        self.d2 = double_conv(ch, 2 * ch)
        self.d3 = double_conv(2 * ch, 4 * ch)
        self.u2 = double_conv(6 * ch, 2 * ch)
        self.u1 = double_conv(3 * ch, ch)
        self.out = nn.Conv2d(ch, n_classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return self.out(a)


def make_tiles(n, size, n_classes, seed=0):
    g = torch.Generator().manual_seed(seed)
    low = torch.randn(n, n_classes, size // 8, size // 8, generator=g)
    mask = F.interpolate(low, size=(size, size), mode="bilinear").argmax(1)
    proto = torch.randn(n_classes, 4, generator=g)
    image = proto[mask].permute(0, 3, 1, 2) + 0.7 * torch.randn(n, 4, size, size, generator=g)
    return image.contiguous(memory_format=torch.channels_last), mask


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    images, masks = make_tiles(64, 64, 5)
    model = UNet().to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batch = 10

    for step in range(args.steps):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        i = (step * batch) % len(images)
        x, y = images[i:i + batch], masks[i:i + batch]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            iou = (logits.argmax(1) == y).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} pixel acc {iou:.3f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
