"""Photo super-resolution (x2) with pixel loss and a feature loss from a fixed network."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_photos(n, size, gen):
    """Smooth colour fields with sharp-edged shapes on top."""
    low = torch.rand(n, 3, 6, 6, generator=gen)
    img = F.interpolate(low, size=(size, size), mode="bicubic", align_corners=False)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    for _ in range(4):
        cy, cx = (torch.rand(n, 1, 1, generator=gen) * size for _ in range(2))
        r = 4 + torch.rand(n, 1, 1, generator=gen) * size / 5
        inside = ((yy - cy) ** 2 + (xx - cx) ** 2 < r ** 2).unsqueeze(1)
        colour = torch.rand(n, 3, 1, 1, generator=gen)
        img = torch.where(inside, colour, img)
    return (img.clamp(0, 1) * 255).to(torch.uint8)


class FeatureNet(nn.Module):
    """Stands for a pretrained recognition network cut after its third stage."""

    def __init__(self):
        super().__init__()
        layers, c = [], 3
        for out in (40, 80, 128):
            layers += [nn.Conv2d(c, out, 3, padding=1), nn.ReLU(),
                       nn.Conv2d(out, out, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)]
            c = out
        self.body = nn.Sequential(*layers)
        for m in self.body:
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)

    def forward(self, x):
        return self.body(x * 2 - 1)


class Upscaler(nn.Module):
    def __init__(self, c=24, depth=3):
        super().__init__()
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1))
            for _ in range(depth))
        self.out = nn.Sequential(nn.Conv2d(c, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, small):
        h = self.inp(small)
        for block in self.body:
            h = h + 0.3 * block(h)
        up = F.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
        return up + self.out(h)


class SharpLoss(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.features = FeatureNet().eval()
        if frozen:
            self.features.requires_grad_(False)

    def forward(self, made, true):
        pixel = F.l1_loss(made, true)
        feature = F.mse_loss(self.features(made), self.features(true))
        return pixel + 0.05 * feature


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=140)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(13)

    photos = make_photos(256, 96, gen)
    model, criterion = Upscaler(), SharpLoss(frozen=args.fix)
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        pick = torch.randint(0, len(photos), (6,), generator=gen)
        top, left = torch.randint(0, 33, (2,), generator=gen).tolist()
        true = photos[pick, :, top:top + 64, left:left + 64].float() / 255
        small = F.avg_pool2d(true, 2)
        loss = criterion(model(small), true)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.5f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
