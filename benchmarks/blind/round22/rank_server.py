"""Second-stage ranking service: score the candidates of one request with a cross network."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F


class Cross(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def forward(self, x0, x):
        return torch.addcmul(x, x0, self.lin(x))


class Ranker(nn.Module):
    def __init__(self, d_user, d_item, d, layers):
        super().__init__()
        self.user, self.item = nn.Linear(d_user, d), nn.Linear(d_item, d)
        self.cross = nn.ModuleList([Cross(d) for _ in range(layers)])
        self.deep = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d // 2), nn.ReLU())
        self.out = nn.Linear(d // 2, 1)

    def forward(self, u, items):
        x0 = F.relu(self.item(items) + self.user(u))
        x = x0
        for c in self.cross:
            x = c(x0, x)
        return self.out(self.deep(x)).squeeze(1)


class Catalogue:
    def __init__(self, n_items, d_item, seed, dtype):
        g = torch.Generator().manual_seed(seed)
        self.feats = torch.randn(n_items, d_item, generator=g).to(dtype)
        self.gen = g

    def request(self, n_cand, d_user):
        u = torch.randn(1, d_user, generator=self.gen).to(self.feats.dtype)
        cand = torch.randint(0, len(self.feats), (n_cand,), generator=self.gen)
        return u, cand


@torch.inference_mode()
def serve(net, cat, u, cand, k):
    score = net(u, cat.feats.index_select(0, cand)).float()
    top = torch.topk(score, k)
    return cand[top.indices], top.values


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--candidates", type=int, default=2048)
    ap.add_argument("--dim", type=int, default=1024)
    ap.add_argument("--cross-layers", type=int, default=3)
    ap.add_argument("--top", type=int, default=50)
    ap.add_argument("--fix", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dtype = torch.bfloat16
    cat = Catalogue(20_000, 256, 1, dtype)
    net = Ranker(128, 256, args.dim, args.cross_layers).to(dtype).eval()
    if args.fix:
        for p in net.parameters():
            p.requires_grad_(False)
    lat, seen = [], 0
    for n in range(1, args.steps + 1):
        u, cand = cat.request(args.candidates, 128)
        t0 = time.perf_counter()
        ids, score = serve(net, cat, u, cand, args.top)
        seen = (seen * 31 + int(ids[0])) % 1_000_003
        lat.append(time.perf_counter() - t0)
        if n % 20 == 0:
            print(f"request {n} best {score[0].item():.4f} checksum {seen}")
    tail = lat[len(lat) // 2:]
    print(f"MEAN_STEP_MS {1e3 * sum(tail) / len(tail):.2f}")


if __name__ == "__main__":
    main()
