"""Classify scanned furniture point clouds: local neighbourhood features at two scales."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 6


def make_scans(n, points, gen):
    """Boxes, cylinders and slabs with random size, orientation and noise."""
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    p = torch.rand(n, points, 3, generator=gen) * 2 - 1
    face = torch.randint(0, 3, (n, points, 1), generator=gen)
    side = torch.randint(0, 2, (n, points, 1), generator=gen).float() * 2 - 1
    box = p.scatter(2, face, side)
    round_xy = F.normalize(p[..., :2], dim=-1)
    tube = torch.cat([round_xy, p[..., 2:]], dim=-1)
    cloud = torch.where((y % 2 == 0)[:, None, None], box, tube)
    stretch = 1 + 0.6 * torch.stack([y // 2 == k for k in range(3)], -1).float()
    cloud = cloud * stretch[:, None] + 0.02 * torch.randn(n, points, 3, generator=gen)
    return cloud, y


def rank_neighbours(query, points, k):
    dist = torch.cdist(query, points)
    return dist.argsort(dim=-1)[..., :k]


def pick_neighbours(query, points, k):
    dist = torch.cdist(query, points)
    return dist.topk(k, dim=-1, largest=False).indices


def take_rows(points, idx):
    """points: B, N, C; idx: B, S, K -> B, S, K, C"""
    b, n, c = points.shape
    flat = (idx + n * torch.arange(b).view(b, 1, 1)).reshape(-1)
    return points.reshape(b * n, c).index_select(0, flat).view(*idx.shape, c)


class LocalLayer(nn.Module):
    """Max over neighbours of (relative position code + neighbour feature)."""

    def __init__(self, c_in, c_out, k, find):
        super().__init__()
        self.k, self.find = k, find
        self.lift = nn.Linear(c_in, c_out)
        self.place = nn.Linear(3, c_out, bias=False)
        self.norm = nn.LayerNorm(c_out)

    def forward(self, xyz, feat, centre):
        idx = self.find(centre, xyz, self.k)
        h = self.lift(feat) + self.place(xyz)
        local = take_rows(h, idx).amax(2)
        return F.relu(self.norm(local - self.place(centre)))


class CloudNet(nn.Module):
    def __init__(self, find):
        super().__init__()
        self.stem = nn.Linear(3, 32)
        self.l1 = LocalLayer(32, 48, 16, find)
        self.l2 = LocalLayer(48, 96, 16, find)
        self.head = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, xyz):
        feat = F.relu(self.stem(xyz))
        c1 = xyz[:, ::2]
        f1 = self.l1(xyz, feat, c1)
        c2 = c1[:, ::2]
        f2 = self.l2(c1, f1, c2)
        return self.head(f2.amax(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(12)

    scans, labels = make_scans(512, 1024, gen)
    model = CloudNet(pick_neighbours if args.fix else rank_neighbours)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        pick = torch.randint(0, len(scans), (8,), generator=gen)
        angle = torch.rand(8, generator=gen) * 6.2832
        c, s, o = angle.cos(), angle.sin(), torch.zeros(8)
        turn = torch.stack([c, -s, o, s, c, o, o, o, o + 1], -1).view(8, 3, 3)
        loss = F.cross_entropy(model(scans[pick] @ turn), labels[pick])
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
