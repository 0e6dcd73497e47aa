"""Will a motor claim be disputed: categorical fields as vectors, products of all pairs of fields, a small MLP."""
import argparse
import itertools
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FIXES = ("gram", "gathered")
FIELDS = {"make": 60, "model": 900, "year": 30, "fuel": 5, "region": 96, "garage": 400, "agent": 700, "damage": 40,
          "weekday": 7, "hour": 24, "witness": 3, "police": 3, "age": 70, "bonus": 25, "product": 12, "channel": 6,
          "road": 9, "weather": 11, "third": 5, "lawyer": 80}


def claims(count, gen):
    """A few fields matter by themselves, a few only together."""
    columns = [(torch.rand(count, generator=gen) ** 2 * size).long() for size in FIELDS.values()]
    x = torch.stack(columns, 1)
    alone = sum(torch.sin(x[:, i].float() + i) for i in (5, 7, 19))
    together = torch.cos(0.7 * (x[:, 1] % 13 - x[:, 4] % 11).float()) + ((x[:, 10] == 0) & (x[:, 8] > 4)).float()
    chance = torch.sigmoid(0.6 * alone + 1.5 * together - 1.5)
    return x, (torch.rand(count, generator=gen) < chance).float()


class FieldVectors(nn.Module):
    """One table for all fields; a field's rows begin at its offset."""

    def __init__(self, sizes, dim):
        super().__init__()
        offsets = torch.tensor([0, *itertools.accumulate(sizes)])
        self.table = nn.Embedding(int(offsets[-1]), dim)
        self.register_buffer("first", offsets[:-1])
        nn.init.normal_(self.table.weight, std=0.2)

    def forward(self, x):
        return self.table(x + self.first)


class InnerProducts(nn.Module):
    """Inner product of every pair of fields: [batch, fields, dim] -> [batch, pairs]."""

    def __init__(self, fields):
        super().__init__()
        self.pairs = list(itertools.combinations(range(fields), 2))

    def forward(self, v):
        products = []
        for i, j in self.pairs:
            products.append((v[:, i] * v[:, j]).sum(dim=1, keepdim=True))
        return torch.cat(products, dim=1)


class GatheredProducts(InnerProducts):
    """Both members of all pairs picked out, one product over all of them."""

    def __init__(self, fields):
        super().__init__(fields)
        self.register_buffer("left", torch.tensor([i for i, _ in self.pairs]))
        self.register_buffer("right", torch.tensor([j for _, j in self.pairs]))

    def forward(self, v):
        return (v.index_select(1, self.left) * v.index_select(1, self.right)).sum(-1)


class GramProducts(GatheredProducts):
    """The Gram matrix of each row holds all of them."""

    def forward(self, v):
        gram = torch.bmm(v, v.transpose(1, 2)).flatten(1)
        return gram.index_select(1, self.left * v.shape[1] + self.right)


PRODUCTS = {None: InnerProducts, "gram": GramProducts, "gathered": GatheredProducts}


class PNN(nn.Module):
    def __init__(self, sizes, dim, hidden, products):
        super().__init__()
        fields = len(sizes)
        self.vectors, self.products = FieldVectors(sizes, dim), products(fields)
        width = fields * dim + fields * (fields - 1) // 2
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, hidden),
                                 nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        v = self.vectors(x)
        return self.mlp(torch.cat([v.flatten(1), self.products(v)], 1)).squeeze(1)


def auc(score, label):
    rank = torch.empty(len(score)).scatter_(0, score.argsort(), torch.arange(1.0, len(score) + 1))
    good = label.sum()
    return ((rank[label > 0].sum() - good * (good + 1) / 2) / (good * (len(label) - good))).item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=80)
    cli.add_argument("--fix", choices=FIXES)
    cli.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = cli.parse_args()
    count, batch, dim, hidden = (60_000, 512, 12, 128) if args.size == "cpu" else (2000, 64, 4, 16)
    gen = torch.Generator().manual_seed(12)
    x, y = claims(count, gen)
    held = count // 10
    torch.manual_seed(12)
    net = PNN(FIELDS.values(), dim, hidden, PRODUCTS[args.fix])
    adam = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4, fused=True)
    began, total = 0.0, torch.zeros(())
    for step in range(args.steps):
        if step == args.steps // 3:
            began = time.perf_counter()
        rows = torch.randint(held, count, (batch,), generator=gen)
        loss = F.binary_cross_entropy_with_logits(net(x[rows]), y[rows])
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        total += loss.detach()
    took = time.perf_counter() - began
    net.eval()
    with torch.inference_mode():
        print(f"auc of held-out claims {auc(net(x[:held]), y[:held]):.4f}")
    print(f"mean loss {total.item() / args.steps:.6f}")
    print(f"mean step ms {took * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
