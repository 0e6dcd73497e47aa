"""Two-tower recommender with in-batch negatives."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(self, n, dim, n_side, new_form):
        super().__init__()
        self.emb = nn.Embedding(n, dim, sparse=new_form)
        nn.init.normal_(self.emb.weight, std=0.05)
        self.side = nn.Linear(n_side, dim)
        self.out = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, ids, side):
        h = torch.cat([self.emb(ids), F.relu(self.side(side))], dim=1)
        return F.normalize(self.out(h), dim=1)


class TwoTower(nn.Module):
    def __init__(self, n_users, n_items, dim=32, new_form=False):
        super().__init__()
        self.user = Tower(n_users, dim, 8, new_form)
        self.item = Tower(n_items, dim, 12, new_form)
        self.temp = nn.Parameter(torch.tensor(2.0))

    def forward(self, users, user_side, items, item_side):
        u = self.user(users, user_side)
        v = self.item(items, item_side)
        return u @ v.T * self.temp.exp()


class Interactions:
    """Zipf-like purchase log; items are chosen near the user's taste."""

    def __init__(self, n_users, n_items, n_events, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.users = (torch.rand(n_events, generator=g) ** 2 * n_users).long()
        taste = (self.users * 7919) % n_items
        self.items = (taste + (torch.randn(n_events, generator=g) * 50).long()) % n_items
        self.user_side = torch.randn(n_events, 8, generator=g)
        self.item_side = torch.randn(n_events, 12, generator=g)
        self.g = g

    def batches(self, batch_size):
        while True:
            order = torch.randperm(len(self.users), generator=self.g)
            for idx in order.split(batch_size):
                if len(idx) == batch_size:
                    yield (self.users[idx], self.user_side[idx],
                           self.items[idx], self.item_side[idx])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--fix", default="")
    args = p.parse_args()
    torch.manual_seed(0)

    n_users, n_items, batch_size = 200_000, 80_000, 512
    log = Interactions(n_users, n_items, 200_000)
    model = TwoTower(n_users, n_items, new_form=args.fix == "v2")
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    target = torch.arange(batch_size)

    running = 0.0
    for step, batch in enumerate(log.batches(batch_size)):
        if step == args.steps // 3:
            t0 = time.perf_counter()
        if step == args.steps:
            break
        logits = model(*batch)
        loss = F.cross_entropy(logits, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running = 0.98 * running + 0.02 * loss.item()
        if step % 50 == 0:
            hit = (logits.argmax(1) == target).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} hit@1 {hit:.3f}")
    ms = (time.perf_counter() - t0) / (args.steps - args.steps // 3) * 1e3
    print(f"final loss {loss.item():.6f} running {running:.5f}")
    print(f"mean step ms {ms:.2f}")


if __name__ == "__main__":
    main()
