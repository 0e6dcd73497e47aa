"""Small pet-breed classifier, 128x128 photos shrunk to 40x40, random 32x32 crops."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN = np.array([0.481, 0.449, 0.396], np.float32)
STD = np.array([0.269, 0.265, 0.274], np.float32)


class Pets:
    def __init__(self, n=1200, full=128, size=40, crop=32, classes=37, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, classes, n)
        base = rng.integers(0, 200, (classes, 1, 1, 3), dtype=np.uint8)
        self.photos = rng.integers(0, 55, (n, full, full, 3), dtype=np.uint8)
        self.photos += base[self.labels]
        self.size, self.span, self.crop = size, size - crop + 1, crop
        self.rng = np.random.default_rng(seed + 1)
        self.ready = None

    def __len__(self):
        return len(self.labels)

    def prepare(self):
        self.ready = np.stack([self.thumb(i) for i in range(len(self))])

    def thumb(self, i):
        img = torch.from_numpy(self.photos[i]).permute(2, 0, 1).unsqueeze(0).float() / 255
        small = F.interpolate(img, size=self.size, mode="bicubic", antialias=True).clamp_(0, 1)
        return small[0].permute(1, 2, 0).numpy()

    def one(self, i):
        return self.thumb(i) if self.ready is None else self.ready[i]

    def batch(self, idx):
        n, c = len(idx), self.crop
        off = self.rng.integers(0, self.span, (n, 2))
        flip = self.rng.random(n) < 0.5
        rows = []
        for k, i in enumerate(idx):
            img = self.one(i)[off[k, 0]:off[k, 0] + c, off[k, 1]:off[k, 1] + c]
            rows.append(img[:, ::-1] if flip[k] else img)
        x = (np.stack(rows) - MEAN) / STD
        return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(self.labels[idx])


class Net(nn.Module):
    def __init__(self, classes=37, w=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, w, 4, 4), nn.BatchNorm2d(w), nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
            nn.Conv2d(2 * w, 4 * w, 3, 2, 1), nn.BatchNorm2d(4 * w), nn.ReLU())
        self.head = nn.Linear(4 * w, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def batches(data, batch):
    rng = np.random.default_rng(11)
    while True:
        order = rng.permutation(len(data))
        for k in range(0, len(order) - batch + 1, batch):
            yield data.batch(order[k:k + batch])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, net = Pets(), Net()
    opt = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    if args.fix:
        data.prepare()
    stream = batches(data, args.batch)
    times = []
    for step in range(args.steps):
        t0 = time.perf_counter()
        x, y = next(stream)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - t0)
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {loss.item():.5f}")
    half = times[len(times) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(half) / len(half):.2f}")


if __name__ == "__main__":
    main()
