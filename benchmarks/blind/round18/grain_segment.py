"""Grain boundary segmentation in micrographs: a plain stack of wide 3x3 convolutions, Dice and cross entropy."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F


def micrographs(count, size, grains, seed=0):
    """Voronoi grains of random brightness with noise; the target marks pixels near a boundary."""
    g = torch.Generator().manual_seed(seed)
    grid = torch.linspace(0, 1, size)
    pixel = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1).view(-1, 2)
    images, edges = [], []
    for _ in range(count):
        seeds, shade = torch.rand(grains, 2, generator=g), torch.rand(grains, generator=g)
        near = torch.cdist(pixel, seeds).topk(2, largest=False)
        edges.append(((near.values[:, 1] - near.values[:, 0]) < 0.02).float().view(1, size, size))
        images.append((shade[near.indices[:, 0]] + 0.1 * torch.randn(len(pixel), generator=g)).view(1, size, size))
    return torch.stack(images), torch.stack(edges)


class BoundaryNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.enter = nn.Conv2d(16, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.leave = nn.Conv2d(width, 16, 1)

    def forward(self, x):
        h = F.relu(self.enter(F.pixel_unshuffle(x, 4)), inplace=True)
        for conv in self.body:
            h = F.relu(conv(h), inplace=True)
        return F.pixel_shuffle(self.leave(h), 4)


def criterion(logits, target):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum((1, 2, 3)) + 1) / ((p + target).sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, target) + dice.mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="channels_last, bf16")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    gpu = args.device == "cuda"
    size, batch, width, depth, count = (512, 16, 256, 10, 64) if gpu else (128, 4, 128, 3, 64)
    torch.manual_seed(0)
    form = torch.channels_last if gpu or args.fix == "channels_last" else torch.contiguous_format
    images, edges = (v.to(args.device, memory_format=form) for v in micrographs(count, size, 60))
    net = BoundaryNet(width, depth).to(args.device, memory_format=form)
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True, fused=True)
    amp = torch.autocast(args.device, dtype=torch.bfloat16, enabled=gpu or args.fix == "bf16")
    losses = []
    for step in range(args.steps):
        if step == args.steps // 3:
            torch.cuda.synchronize() if gpu else None
            t0 = time.perf_counter()
        rows = torch.randint(count, (batch,), device=args.device)
        with amp:
            logits = net(images[rows])
        loss = criterion(logits.float(), edges[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    torch.cuda.synchronize() if gpu else None
    spent = time.perf_counter() - t0
    print(f"loss first {losses[0].item():.5f} last {torch.stack(losses[-20:]).mean().item():.5f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
