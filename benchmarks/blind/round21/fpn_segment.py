"""Semantic segmentation of synthetic shapes with a light FPN decoder."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def conv_bn(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.s1 = conv_bn(3, 12, 2)
        self.s2 = conv_bn(12, 24, 2)
        self.s3 = conv_bn(24, 48, 2)

    def forward(self, x):
        a = self.s1(x)
        b = self.s2(a)
        return b, self.s3(b)


class Segmenter(nn.Module):
    def __init__(self, classes=5, dim=64, fix=False):
        super().__init__()
        self.enc = Encoder()
        self.lat2 = nn.Conv2d(24, dim, 1)
        self.lat3 = nn.Conv2d(48, dim, 1)
        self.classify = nn.Conv2d(dim, classes, 1)
        self.fix = fix

    def forward(self, x):
        b, c = self.enc(x)
        f = self.lat2(b) + F.interpolate(self.lat3(c), scale_factor=2, mode="nearest")
        f = F.relu(f)
        if self.fix:
            return F.interpolate(self.classify(f), size=x.shape[-2:], mode="bilinear", align_corners=False)
        f = F.interpolate(f, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.classify(f)


def shapes(batch, size, classes, gen):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    mask = torch.zeros(batch, size, size, dtype=torch.long)
    for k in range(1, classes):
        cy, cx = torch.randint(8, size - 8, (2, batch, 1, 1), generator=gen)
        rad = torch.randint(6, 20, (batch, 1, 1), generator=gen)
        mask[(yy - cy) ** 2 + (xx - cx) ** 2 < rad ** 2] = k
    palette = torch.linspace(-1, 1, classes * 3).view(classes, 3)
    img = palette[mask].permute(0, 3, 1, 2)
    return img + 0.4 * torch.randn(img.shape, generator=gen), mask


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    gen = torch.Generator().manual_seed(8)
    torch.manual_seed(8)
    images, masks = shapes(128, 96, 5, gen)
    net = Segmenter(fix=args.fix)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    secs, avg = [], 1.6
    for it in range(args.steps):
        t0 = time.perf_counter()
        pick = torch.randint(0, 128, (4,), generator=gen)
        out = net(images[pick])
        loss = F.cross_entropy(out, masks[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg = 0.97 * avg + 0.03 * loss.item()
        secs.append(time.perf_counter() - t0)
        if it % 100 == 0:
            print(f"iter {it} ce {avg:.4f}")
    secs = secs[len(secs) // 3:]
    print(f"loss {avg:.5f}")
    print(f"mean step ms {1e3 * sum(secs) / len(secs):.3f}")


if __name__ == "__main__":
    main()
