"""Two-tower retrieval for a shop: click log read row by row.

Domain: recommendation, training with accelerate (bf16).
Why: the dataset hands out one row of five small tensors at a time and the default collate stacks 8192 of them. A worker
     needs over a hundred milliseconds for a batch, four of them deliver one every few dozen; the towers need a few.
Trap: workers, pinned memory and non-blocking copies are all in place, so the loader looks well set up; the towers are
      small enough to look launch-bound, and two embedding tables make gathers appear in every trace.
Fixes: whole-batches (`__getitems__` indexes each column once for the whole batch; no collate).
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from common import Clock, arguments

WALLS = [["data", "loader-starved"]]
FIXES = ["whole-batches"]
TRUTH_STEPS = 300

USERS, ITEMS = 200_000, 100_000


class ClickLog(Dataset):
    def __init__(self, rows):
        make = torch.Generator().manual_seed(1)
        self.user = torch.randint(USERS, (rows,), generator=make)
        self.item = torch.randint(ITEMS, (rows,), generator=make)
        self.history = torch.randint(ITEMS, (rows, 12), generator=make)
        self.dense = torch.randn(rows, 16, generator=make)
        self.weight = torch.rand(rows, generator=make)

    def __len__(self):
        return len(self.user)

    def __getitem__(self, row):
        return self.user[row], self.item[row], self.history[row], self.dense[row], self.weight[row]


class BatchedClickLog(ClickLog):
    def __getitems__(self, rows):
        rows = torch.tensor(rows)
        return self.user[rows], self.item[rows], self.history[rows], self.dense[rows], self.weight[rows]


def as_it_is(batch):
    return batch


class TwoTower(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.items = nn.Embedding(ITEMS, width)
        self.query = nn.Sequential(nn.Linear(2 * width + 16, 1024), nn.ReLU(),
                                   nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, width))
        self.key = nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, width))

    def forward(self, user, item, history, dense):
        past = self.items(history).mean(1)
        query = self.query(torch.cat([self.users(user), past, dense], 1))
        key = self.key(self.items(item))
        return F.normalize(query, dim=-1), F.normalize(key, dim=-1)


def main():
    args = arguments(steps=TRUTH_STEPS, fixes=FIXES)
    torch.manual_seed(0)
    rows, batch = (1_500_000, 8192) if args.gpu else (20_000, 512)
    accelerator = Accelerator(mixed_precision="bf16") if args.gpu else Accelerator(cpu=True)
    batched = args.fix == "whole-batches"
    data = BatchedClickLog(rows) if batched else ClickLog(rows)
    workers = 4 if args.gpu else 1
    loader = DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True, pin_memory=args.gpu,
                        persistent_workers=True, collate_fn=as_it_is if batched else None)
    model = TwoTower()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    device = accelerator.device

    clock = Clock(args.steps)
    done = 0
    while done < args.steps:
        for columns in loader:
            user, item, history, dense, weight = (column.to(device, non_blocking=True) for column in columns)
            optimizer.zero_grad()
            query, key = model(user, item, history, dense)
            logits = query @ key.T * 20
            each = F.cross_entropy(logits.float(), torch.arange(len(user), device=device), reduction="none")
            loss = (each * weight).mean()
            accelerator.backward(loss)
            optimizer.step()
            done += 1
            if done % 100 == 0:
                print(f"{done} {loss.item():.4f}", flush=True)
            clock.tick()
            if done == args.steps:
                break
    clock.report()


if __name__ == "__main__":
    main()
