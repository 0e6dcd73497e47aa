"""Click model for a shop: user and item embeddings plus a small tower, trained on a click log."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

USERS = 400_000
ITEMS = 250_000
DIM = 32


class ClickLog:
    """A synthetic log with popular items and a hidden taste for each user group."""

    def __init__(self, n, gen):
        self.user = torch.randint(0, USERS, (n,), generator=gen)
        u = torch.rand(n, generator=gen)
        self.item = (ITEMS * u ** 3).long().clamp(max=ITEMS - 1)
        self.ctx = torch.randn(n, 8, generator=gen)
        taste = torch.sin(self.user % 17 + 0.37 * (self.item % 23))
        logit = 1.5 * taste + self.ctx[:, 0] - 0.5
        self.click = (torch.rand(n, generator=gen) < torch.sigmoid(logit)).float()

    def __len__(self):
        return len(self.user)

    def batches(self, size, gen):
        while True:
            order = torch.randperm(len(self), generator=gen)
            for i in range(0, len(self) - size + 1, size):
                j = order[i:i + size]
                yield self.user[j], self.item[j], self.ctx[j], self.click[j]


class Ranker(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM, sparse=sparse)
        self.item = nn.Embedding(ITEMS, DIM, sparse=sparse)
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)
        self.tower = nn.Sequential(
            nn.Linear(3 * DIM + 8, 256), nn.ReLU(),
            nn.Linear(256, 128), nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, user, item, ctx):
        u, i = self.user(user), self.item(item)
        x = torch.cat([u, i, u * i, ctx], dim=1)
        return self.tower(x).squeeze(1) + (u * i).sum(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fix", action="store_true")
    ap.add_argument("--batch", type=int, default=4096)
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(7)

    log = ClickLog(600_000, gen)
    stream = log.batches(args.batch, gen)
    model = Ranker(sparse=args.fix)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    running, times = torch.zeros(()), []
    for step in range(args.steps):
        t0 = time.perf_counter()
        user, item, ctx, click = next(stream)
        score = model(user, item, ctx)
        loss = F.binary_cross_entropy_with_logits(score, click)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach()
        times.append(time.perf_counter() - t0)
        if (step + 1) % 25 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.5f} running {running.item() / (step + 1):.5f}")
    with torch.no_grad():
        user, item, ctx, click = next(stream)
        acc = ((model(user, item, ctx) > 0).float() == click).float().mean().item()
    print(f"holdout accuracy {acc:.4f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
