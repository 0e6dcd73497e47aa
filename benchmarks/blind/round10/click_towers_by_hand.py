import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

p = argparse.ArgumentParser()
p.add_argument("--seconds", type=float, default=6)
p.add_argument("--plain", action="store_true")
p.add_argument("--source", choices=["device", "loader"], default="device",
               help="device: table kept on the GPU; loader: same DataLoader, whole batches per fetch")
p.add_argument("--no-compile", action="store_true")
args = p.parse_args()

cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
torch.set_float32_matmul_precision("high" if torch.cuda.is_available() else "highest")
torch.manual_seed(0)

ROWS, USERS, ITEMS = (2_000_000, 500_000, 200_000) if cuda else (2_000, 500, 200)
BATCH = 8192 if cuda else 64
HIST, UCAT, ICAT, CARD = 20, 8, 6, 1000


class Clicks(Dataset):
    def __init__(self, rows):
        rng = np.random.default_rng(0)
        self.user = rng.integers(0, USERS, rows)
        self.item = rng.integers(0, ITEMS, rows)
        self.hist = rng.integers(0, ITEMS, (rows, HIST))
        self.ucat = rng.integers(0, CARD, (rows, UCAT))
        self.icat = rng.integers(0, CARD, (rows, ICAT))
        self.dense = rng.standard_normal((rows, 16), dtype=np.float32)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return {
            "user": self.user[i], "item": self.item[i], "hist": self.hist[i],
            "ucat": self.ucat[i], "icat": self.icat[i], "dense": self.dense[i],
        }


class Cats(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.table = nn.Embedding(n * CARD, dim)
        self.register_buffer("offset", torch.arange(n) * CARD)

    def forward(self, x):
        return self.table(x + self.offset).flatten(1)


def mlp(cin, width=1024, out=128):
    return nn.Sequential(nn.Linear(cin, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))


class TwoTower(nn.Module):
    def __init__(self, dim=64, cat_dim=16):
        super().__init__()
        self.users = nn.Embedding(USERS, dim)
        self.items = nn.Embedding(ITEMS, dim)
        self.ucats = Cats(UCAT, cat_dim)
        self.icats = Cats(ICAT, cat_dim)
        self.user_mlp = mlp(2 * dim + UCAT * cat_dim + 16)
        self.item_mlp = mlp(dim + ICAT * cat_dim)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, b):
        u = torch.cat([self.users(b["user"]), self.items(b["hist"]).mean(1), self.ucats(b["ucat"]), b["dense"]], 1)
        v = torch.cat([self.items(b["item"]), self.icats(b["icat"])], 1)
        u = F.normalize(self.user_mlp(u), dim=-1)
        v = F.normalize(self.item_mlp(v), dim=-1)
        return self.scale.exp() * u @ v.T


dataset = Clicks(ROWS)


def host_batches(loader):
    while True:
        for b in loader:
            yield {k: v.to(device, non_blocking=True) for k, v in b.items()}


def device_batches():
    cols = {k: torch.from_numpy(getattr(dataset, k)).to(device)
            for k in ("user", "item", "hist", "ucat", "icat", "dense")}
    while True:
        perm = torch.randperm(ROWS, device=device)
        for s in range(0, ROWS - BATCH + 1, BATCH):
            i = perm[s:s + BATCH]
            yield {k: v[i] for k, v in cols.items()}


workers = dict(num_workers=4 if cuda else 0, pin_memory=cuda, persistent_workers=cuda)
if args.plain:
    batches = host_batches(DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, **workers))
elif args.source == "loader":
    sampler = BatchSampler(RandomSampler(dataset), BATCH, drop_last=True)
    batches = host_batches(DataLoader(dataset, sampler=sampler, batch_size=None, **workers))
else:
    batches = device_batches()

model = TwoTower().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
labels = torch.arange(BATCH, device=device)


def forward_loss(batch):
    with torch.autocast(device, dtype=torch.bfloat16, enabled=cuda):
        logits = model(batch)
    return F.cross_entropy(logits.float(), labels)


if not (args.plain or args.no_compile):
    forward_loss = torch.compile(forward_loss, dynamic=False)


def step():
    loss = forward_loss(next(batches))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def sync():
    if cuda:
        torch.cuda.synchronize()


for _ in range(20):
    step()
sync()
t = time.perf_counter()
for _ in range(20):
    step()
sync()
n = max(30, int(args.seconds / ((time.perf_counter() - t) / 20)))
t = time.perf_counter()
for _ in range(n):
    loss = step()
sync()
ms = (time.perf_counter() - t) / n * 1e3
print(f"steps {n} last loss {loss.item():.4f}", flush=True)
print(f"mean step ms {ms:.3f}", flush=True)
