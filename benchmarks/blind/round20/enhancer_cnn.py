"""Enhancer activity from DNA: windows of a reference genome, a dilated residual CNN."""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXES = ("lookup", "workers")
ONE_HOT = {"A": [1, 0, 0, 0], "C": [0, 1, 0, 0], "G": [0, 0, 1, 0], "T": [0, 0, 0, 1]}
UNKNOWN = [0, 0, 0, 0]
MOTIFS = ("TGACTCA", "CACGTG", "GGGCGG", "TTGCGCAA")


def make_genome(length, sites, window, seed=31):
    """A random chromosome with motifs planted in it, and the activity of every site."""
    rng = np.random.default_rng(seed)
    letters = rng.choice(list("ACGTN"), size=length, p=[0.29, 0.205, 0.205, 0.295, 0.005])
    starts = rng.integers(0, length - window, size=sites)
    activity = rng.normal(0, 0.2, size=sites).astype(np.float32)
    for i, start in enumerate(starts):
        for m in np.flatnonzero(rng.random(len(MOTIFS)) < 0.4):
            at = start + rng.integers(window - 8)
            letters[at : at + len(MOTIFS[m])] = list(MOTIFS[m])
            activity[i] += (0.8, -0.5, 0.6, 1.1)[m]
    return "".join(letters), starts, activity


class Windows(Dataset):
    """One window: four channels, one for each letter (N stays zero), sometimes as its reverse complement."""

    def __init__(self, genome, starts, activity, window):
        self.genome, self.starts, self.activity, self.window = genome, starts, activity, window

    def __len__(self):
        return len(self.starts)

    def encode(self, sequence):
        rows = [ONE_HOT.get(letter, UNKNOWN) for letter in sequence]
        return torch.tensor(rows, dtype=torch.float32).t()

    def __getitem__(self, i):
        start = self.starts[i]
        x = self.encode(self.genome[start : start + self.window])
        if start % 2:
            x = x.flip(0, 1)
        return x, self.activity[i]


class TableWindows(Windows):
    """The same channels through a table of 256 rows that is indexed with the bytes of the window."""

    def __init__(self, *args):
        super().__init__(*args)
        self.table = np.zeros((256, 4), dtype=np.float32)
        for letter, row in ONE_HOT.items():
            self.table[ord(letter)] = row

    def encode(self, sequence):
        return torch.from_numpy(self.table[np.frombuffer(sequence.encode(), dtype=np.uint8)]).t()


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)

    def forward(self, x):
        return x + self.conv(F.relu(self.norm(x)))


class EnhancerNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 15, stride=2, padding=7)
        self.blocks = nn.Sequential(*(Block(width, 2**i) for i in range(depth)))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, x):
        h = self.blocks(F.max_pool1d(F.relu(self.stem(x)), 4))
        return self.head(torch.cat([h.amax(2), h.mean(2)], 1)).squeeze(1)


def endless(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fix", choices=FIXES, default=None)
    parser.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = parser.parse_args()
    batch, window, width = (48, 500, 32) if args.size == "cpu" else (8, 120, 16)

    torch.manual_seed(8)
    kind = TableWindows if args.fix == "lookup" else Windows
    data = kind(*make_genome(1_000_000, 6000, window), window)
    workers = 2 if args.fix == "workers" else 0
    order = torch.Generator().manual_seed(8)
    loader = DataLoader(data, batch, shuffle=True, drop_last=True, generator=order, num_workers=workers,
                        persistent_workers=workers > 0)
    net = EnhancerNet(width, 3)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, fused=True)

    mean, began = 0.0, 0.0
    batches = endless(loader)
    for step in range(args.steps):
        if step == args.steps // 3:
            began = time.perf_counter()
        x, y = next(batches)
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean += loss.item() / args.steps
        if step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
    seconds = time.perf_counter() - began
    print(f"mean loss {mean:.6f}")
    print(f"mean step ms {seconds * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
