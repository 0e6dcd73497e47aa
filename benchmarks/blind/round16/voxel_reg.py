"""Unsupervised deformable registration of brain-like volumes (stationary velocity field, local NCC)."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.main = nn.Conv3d(cin, cout, 3, stride, 1)

    def forward(self, x):
        return F.leaky_relu(self.main(x), 0.2)


class Unet(nn.Module):
    """Encoder/decoder that stops at half resolution."""

    def __init__(self, enc, dec):
        super().__init__()
        self.down = nn.ModuleList()
        prev = 2
        for c in enc:
            self.down.append(ConvBlock(prev, c, 2))
            prev = c
        self.up = nn.ModuleList()
        skips = list(enc[:-1])[::-1]
        for c, s in zip(dec, skips):
            self.up.append(ConvBlock(prev, c))
            prev = c + s
        self.tail = nn.Sequential(ConvBlock(prev, dec[-1]), ConvBlock(dec[-1], dec[-1]))

    def forward(self, x):
        feats = []
        for d in self.down:
            x = d(x)
            feats.append(x)
        feats.pop()
        for u in self.up:
            x = F.interpolate(u(x), scale_factor=2, mode="nearest")
            x = torch.cat([x, feats.pop()], 1)
        return self.tail(x)


class SpatialTransformer(nn.Module):
    def __init__(self, size):
        super().__init__()
        grid = torch.stack(torch.meshgrid([torch.arange(0, s) for s in size], indexing="ij")).float()
        self.register_buffer("grid", grid.unsqueeze(0), persistent=False)
        self.size = size

    def forward(self, src, flow):
        loc = self.grid + flow
        loc = torch.stack([2 * (loc[:, i] / (s - 1) - 0.5) for i, s in enumerate(self.size)], -1)
        return F.grid_sample(src, loc[..., [2, 1, 0]], align_corners=True)


class Registration(nn.Module):
    def __init__(self, size, enc, dec, int_steps=5):
        super().__init__()
        half = [s // 2 for s in size]
        self.unet = Unet(enc, dec)
        self.flow = nn.Conv3d(dec[-1], 3, 3, padding=1)
        nn.init.normal_(self.flow.weight, 0, 1e-5)
        nn.init.zeros_(self.flow.bias)
        self.steps, self.warp_half, self.warp = int_steps, SpatialTransformer(half), SpatialTransformer(size)

    def forward(self, moving, fixed):
        svf = self.flow(self.unet(torch.cat([moving, fixed], 1)))
        disp = svf / 2 ** self.steps
        for _ in range(self.steps):
            disp = disp + self.warp_half(disp, disp)
        disp = 2 * F.interpolate(disp, scale_factor=2, mode="trilinear", align_corners=True)
        return self.warp(moving, disp), svf


class NCC:
    """Local (over a cubic window) normalised cross correlation."""

    def __init__(self, win=9, sums="conv"):
        self.win, self.sums = win, sums

    def window_sums(self, maps):
        w = self.win
        if self.sums == "box":
            x = torch.cat(maps)
            for k in ((w, 1, 1), (1, w, 1), (1, 1, w)):
                x = F.avg_pool3d(x, k, stride=1, padding=[n // 2 for n in k]) * w
            return x.chunk(len(maps))
        filt = torch.ones(1, 1, w, w, w, device=maps[0].device)
        if self.sums == "stack":
            return F.conv3d(torch.cat(maps), filt, padding=w // 2).chunk(len(maps))
        return [F.conv3d(m, filt, padding=w // 2) for m in maps]

    def loss(self, Ii, Ji):
        I_sum, J_sum, I2_sum, J2_sum, IJ_sum = self.window_sums([Ii, Ji, Ii * Ii, Ji * Ji, Ii * Ji])
        n = self.win ** 3
        u_I, u_J = I_sum / n, J_sum / n
        cross = IJ_sum - u_J * I_sum - u_I * J_sum + u_I * u_J * n
        I_var = I2_sum - 2 * u_I * I_sum + u_I * u_I * n
        J_var = J2_sum - 2 * u_J * J_sum + u_J * u_J * n
        return -torch.mean(cross * cross / (I_var * J_var + 1e-1))


def smoothness(v):
    return sum((v.diff(dim=d) ** 2).mean() for d in (2, 3, 4)) / 3


def make_subjects(n, size, device):
    low = [max(4, s // 10) for s in size]
    x = F.interpolate(torch.rand(n, 1, *low, device=device), size=size, mode="trilinear", align_corners=True)
    return (x + 0.15 * torch.rand(n, 1, *size, device=device)).clamp(0, 1)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = args.fix.split(",")
    device = "cpu" if args.cpu else "cuda"
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    size = [32, 32, 32] if args.tiny else [160, 160, 160]
    enc, dec = ([8, 8, 8], [8, 8, 8]) if args.tiny else ([16, 32, 32, 32], [32, 32, 32, 16])
    scans = make_subjects(3 if args.tiny else 8, size, device)
    model = Registration(size, enc, dec).to(device)
    image_loss = NCC(9, "box" if "box" in fix else "stack" if "stack" in fix else "conv").loss
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        if step == args.steps // 2:
            torch.cuda.synchronize() if device == "cuda" else None
            t0 = time.perf_counter()
        a, b = rng.choice(len(scans), 2, replace=False)
        moving, fixed = scans[a:a + 1], scans[b:b + 1]
        moved, svf = model(moving, fixed)
        loss = image_loss(fixed, moved) + 0.01 * smoothness(svf)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize() if device == "cuda" else None
    print("MEAN_STEP_MS %.3f" % ((time.perf_counter() - t0) * 1e3 / (args.steps - args.steps // 2)))
    print("loss %.6f" % loss.item())
