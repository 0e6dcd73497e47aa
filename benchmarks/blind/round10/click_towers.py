# two-tower retrieval model, in-batch softmax over clicks
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=20000)
p.add_argument("--batch-size", type=int, default=None)
args = p.parse_args()

cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
torch.set_float32_matmul_precision("high" if torch.cuda.is_available() else "highest")
torch.manual_seed(0)

ROWS, USERS, ITEMS = (2_000_000, 500_000, 200_000) if cuda else (2_000, 500, 200)
BATCH = args.batch_size or (8192 if cuda else 64)
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
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=4 if cuda else 0,
                    pin_memory=cuda, persistent_workers=cuda)
model = TwoTower().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
labels = torch.arange(BATCH, device=device)

step, start = 0, time.time()
while step < args.steps:
    for batch in loader:
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        with torch.autocast(device, dtype=torch.bfloat16, enabled=cuda):
            logits = model(batch)
        loss = F.cross_entropy(logits.float(), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{step} loss {loss.item():.4f} {(time.time() - start) / (step + 1) * 1e3:.1f} ms/step", flush=True)
        step += 1
        if step == args.steps:
            break
