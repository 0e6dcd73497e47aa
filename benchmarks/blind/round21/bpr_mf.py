"""BPR matrix factorisation on implicit feedback."""
import argparse
import random
import time

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


def fake_interactions(n_users, n_items, rng):
    history = []
    for _ in range(n_users):
        n = min(int(rng.lognormvariate(4.6, 1.0)) + 20, n_items // 2)
        history.append(rng.sample(range(n_items), n))
    return history


class Sampler:
    def __init__(self, history, n_items, rng, fix=False):
        self.pairs = [(u, i) for u, items in enumerate(history) for i in items]
        self.seen = [set(h) for h in history] if fix else history
        self.n_items, self.rng = n_items, rng

    def negative(self, u):
        j = self.rng.randrange(self.n_items)
        while j in self.seen[u]:
            j = self.rng.randrange(self.n_items)
        return j

    def draw(self, batch, n_neg):
        chosen = [self.pairs[self.rng.randrange(len(self.pairs))] for _ in range(batch)]
        users, pos = zip(*chosen)
        neg = [[self.negative(u) for _ in range(n_neg)] for u in users]
        return torch.tensor(users), torch.tensor(pos), torch.tensor(neg)


class MF(nn.Module):
    def __init__(self, n_users, n_items, dim=32):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.bias = nn.Embedding(n_items, 1)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, pos, neg):
        pu = self.user(u)
        sp = (pu * self.item(pos)).sum(-1) + self.bias(pos).squeeze(-1)
        sn = (pu[:, None] * self.item(neg)).sum(-1) + self.bias(neg).squeeze(-1)
        return -F.logsigmoid(sp[:, None] - sn).mean()


def train(args):
    rng = random.Random(99)
    torch.manual_seed(99)
    n_users, n_items = 2000, 3000
    history = fake_interactions(n_users, n_items, rng)
    sampler = Sampler(history, n_items, rng, args.fix)
    model = MF(n_users, n_items)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    durations, smooth = [], 0.69
    for step in range(args.steps):
        t = time.perf_counter()
        u, p, n = sampler.draw(512, 4)
        loss = model(u, p, n)
        opt.zero_grad()
        loss.backward()
        opt.step()
        smooth = 0.95 * smooth + 0.05 * loss.item()
        durations.append(time.perf_counter() - t)
        if step % 100 == 0:
            print(f"step {step}  bpr {smooth:.4f}")
    durations = durations[args.steps // 3:]
    print(f"loss {smooth:.5f}")
    print(f"mean step ms {1000 * sum(durations) / len(durations):.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--fix", action="store_true")
    train(ap.parse_args())
