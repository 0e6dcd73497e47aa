"""Click model for a shop that runs in many countries: shared towers, a scale and shift of the features for each market."""
import time
from argparse import ArgumentParser

import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS = [20_000, 8_000, 5_000, 2_000, 1_000, 500, 200, 50]


class MarketNorm(nn.Module):
    """LayerNorm whose affine part belongs to the market of the row."""

    def __init__(self, dim, n_markets):
        super().__init__()
        self.dim, self.n_markets = dim, n_markets
        self.gamma = nn.Parameter(torch.ones(n_markets, dim) + 0.02 * torch.randn(n_markets, dim))
        self.beta = nn.Parameter(torch.zeros(n_markets, dim))

    def forward(self, x, market):
        x = F.layer_norm(x, (self.dim,))
        out = torch.empty_like(x)
        for m in range(self.n_markets):
            rows = market == m
            out[rows] = x[rows] * self.gamma[m] + self.beta[m]
        return out


class GatheredMarketNorm(MarketNorm):
    def forward(self, x, market):
        x = F.layer_norm(x, (self.dim,))
        return torch.addcmul(F.embedding(market, self.beta), x, F.embedding(market, self.gamma))


class IndexedMarketNorm(MarketNorm):
    """Positions from one sort instead of a comparison for each market."""

    def forward(self, x, market):
        x = F.layer_norm(x, (self.dim,))
        order = torch.argsort(market)
        sizes = torch.bincount(market, minlength=self.n_markets).tolist()
        parts = [p * self.gamma[m] + self.beta[m] for m, p in enumerate(x[order].split(sizes))]
        return torch.cat(parts)[torch.argsort(order)]


NORMS = {"": MarketNorm, "gather": GatheredMarketNorm, "sort": IndexedMarketNorm}


class ClickNet(nn.Module):
    def __init__(self, emb, hidden, n_markets, norm):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, emb, sparse=False) for n in FIELDS)
        for t in self.tables:
            nn.init.normal_(t.weight, std=0.05)
        width = emb * len(FIELDS)
        self.inp = nn.Linear(width, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.norm1, self.norm2 = norm(hidden, n_markets), norm(hidden, n_markets)
        self.out = nn.Linear(hidden, 1)

    def forward(self, fields, market):
        x = torch.cat([t(fields[:, i]) for i, t in enumerate(self.tables)], dim=1)
        x = F.relu(self.norm1(self.inp(x), market))
        x = x + F.relu(self.norm2(self.mid(x), market))
        return self.out(x).squeeze(1)


class Impressions:
    """A day of impressions kept on the device, read in random order."""

    def __init__(self, rows, n_markets, device):
        g = torch.Generator().manual_seed(11)
        self.fields = torch.stack([(torch.rand(rows, generator=g) ** 3 * n).long() for n in FIELDS], 1).to(device)
        share = torch.rand(n_markets, generator=g) + 0.1
        self.market = torch.multinomial(share, rows, replacement=True, generator=g).to(device)
        bias = torch.randn(n_markets, generator=g).to(device)
        z = bias[self.market] + 0.5 * torch.sin(self.fields[:, 0].float()) - 1.0
        self.click = (torch.rand(rows, generator=g).to(device) < torch.sigmoid(z)).float()

    def batches(self, size):
        n = len(self.click)
        while True:
            perm = torch.randperm(n, device=self.click.device)
            for s in range(0, n - size + 1, size):
                i = perm[s:s + size]
                yield self.fields[i], self.market[i], self.click[i]


def get_args():
    ap = ArgumentParser()
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--fix", default="", choices=sorted(NORMS))
    return ap.parse_args()


def main(args):
    on_gpu = args.device == "cuda"
    rows, markets, emb, hidden, batch = (2_000_000, 120, 64, 1024, 16384) if on_gpu else (200_000, 32, 16, 256, 2048)
    torch.manual_seed(5)
    data = Impressions(rows, markets, args.device).batches(batch)
    net = ClickNet(emb, hidden, markets, NORMS[args.fix]).to(args.device)
    opt = torch.optim.Adagrad(net.parameters(), lr=0.02, fused=None if on_gpu else True)

    def fence():
        if on_gpu:
            torch.cuda.synchronize()

    smooth, skip = torch.zeros((), device=args.device), args.steps // 3
    for n, (fields, market, click) in zip(range(args.steps), data):
        if n == skip:
            fence()
            t0 = time.perf_counter()
        loss = F.binary_cross_entropy_with_logits(net(fields, market), click)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        smooth.lerp_(loss.detach(), 0.05)
        if (n + 1) % 50 == 0:
            print("%5d  logloss %.4f" % (n + 1, smooth.item() / (1 - 0.95 ** (n + 1))))
    fence()
    print("mean step ms %.3f" % ((time.perf_counter() - t0) / (args.steps - skip) * 1e3))


if __name__ == "__main__":
    main(get_args())
