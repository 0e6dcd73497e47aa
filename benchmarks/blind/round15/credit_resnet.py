"""Default-risk model on tabular loan records: embeddings for codes, residual MLP."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NUMERIC, CODES, LEVELS = 40, 10, 60


def make_loans(n, gen):
    num = torch.randn(n, NUMERIC, generator=gen)
    num[:, :10] = num[:, :10].exp()
    cat = torch.randint(0, LEVELS, (n, CODES), generator=gen)
    effect = torch.randn(CODES, LEVELS, generator=gen) * 0.5
    score = effect[torch.arange(CODES), cat].sum(1)
    score = score + num[:, 12] * num[:, 13] + torch.log(num[:, 0]) - 0.5 * num[:, 20].square()
    default = (torch.rand(n, generator=gen) < torch.sigmoid(score - 1)).float()
    return num, cat, default


class Block(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class LoanNet(nn.Module):
    def __init__(self, d=384, hidden=768, depth=3):
        super().__init__()
        self.codes = nn.Embedding(CODES * LEVELS, 8)
        self.register_buffer("offset", torch.arange(CODES) * LEVELS)
        self.inp = nn.Linear(NUMERIC + CODES * 8, d)
        self.blocks = nn.ModuleList(Block(d, hidden) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, 1)

    def forward(self, num, cat):
        codes = self.codes(cat + self.offset).flatten(1)
        h = self.inp(torch.cat([num, codes], dim=1))
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h)).squeeze(1)


@torch.no_grad()
def evaluate(model, num, cat, default):
    model.eval()
    score = model(num, cat)
    model.train()
    order = score.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(1, len(order) + 1)
    pos = default.bool()
    p, n = int(pos.sum()), int((~pos).sum())
    return (rank[pos].double().sum().item() - p * (p + 1) / 2) / (p * n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", action="store_true", help="no other form: same run")
    args = ap.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(14)

    num, cat, default = make_loans(60_000, gen)
    num[:, :10] = num[:, :10].log()
    num = (num - num.mean(0)) / num.std(0)
    held, train = slice(0, 4000), torch.arange(4000, len(num))
    model = LoanNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    order, at, times = train[torch.randperm(len(train), generator=gen)], 0, []
    for step in range(args.steps):
        t0 = time.perf_counter()
        if at + 2048 > len(order):
            order, at = train[torch.randperm(len(train), generator=gen)], 0
        pick = order[at:at + 2048]
        at += 2048
        loss = F.binary_cross_entropy_with_logits(model(num[pick], cat[pick]), default[pick])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        times.append(time.perf_counter() - t0)
        if step % 50 == 0 or step == args.steps - 1:
            auc = evaluate(model, num[held], cat[held], default[held])
            print(f"step {step} loss {loss.item():.5f} held-out auc {auc:.4f}")
    tail = times[len(times) // 3:]
    print(f"mean step ms {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
