"""Relational GCN for entity typing on a knowledge graph (full batch)."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class RelConv(nn.Module):
    def __init__(self, d_in, d_out, n_rel, node_side=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rel, d_in, d_out))
        nn.init.xavier_uniform_(self.weight)
        self.root = nn.Linear(d_in, d_out)
        self.node_side = node_side

    def forward(self, h, src, dst, rel, norm):
        if self.node_side:
            per_rel = torch.matmul(h, self.weight)                     # (R, N, d_out)
            msg = per_rel.flatten(0, 1).index_select(0, rel * h.size(0) + src)
        else:
            w = self.weight.flatten(1).index_select(0, rel).view(-1, *self.weight.shape[1:])
            msg = torch.bmm(h.index_select(0, src).unsqueeze(1), w).squeeze(1)
        out = torch.zeros(h.size(0), msg.size(1), device=h.device).index_add(0, dst, msg * norm[:, None])
        return out + self.root(h)


class RGCN(nn.Module):
    def __init__(self, n_nodes, d, classes, n_rel, layers, **kw):
        super().__init__()
        self.emb = nn.Embedding(n_nodes, d)
        self.convs = nn.ModuleList(RelConv(d, d, n_rel, **kw) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.out = nn.Linear(d, classes)

    def forward(self, src, dst, rel, norm):
        h = self.emb.weight
        for conv, ln in zip(self.convs, self.norms):
            h = h + F.relu(ln(conv(h, src, dst, rel, norm)))
        return self.out(h)


def synthetic_kg(n, e, r, classes, dev):
    g = torch.Generator().manual_seed(1)
    src, dst = torch.randint(0, n, (2, e), generator=g)
    rel = torch.randint(0, r, (e,), generator=g)
    key = dst * r + rel
    norm = 1.0 / torch.bincount(key, minlength=n * r)[key].float()
    y = torch.randint(0, classes, (n,), generator=g)
    train = torch.randperm(n, generator=g)[: n // 2]
    return [v.to(dev) for v in (src, dst, rel, norm, y, train)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fix", default="")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fixes = set(filter(None, args.fix.split(",")))
    dev = torch.device("cpu" if args.cpu else "cuda")
    torch.manual_seed(0)
    n, e, r, d, classes, layers = (50, 200, 3, 8, 4, 2) if args.tiny else (20_000, 160_000, 24, 64, 50, 2)
    src, dst, rel, norm, y, train = synthetic_kg(n, e, r, classes, dev)
    model = RGCN(n, d, classes, r, layers, node_side="node_side" in fixes).to(dev)
    opt = torch.optim.Adam(model.parameters(), 3e-3, fused=True)
    timed = min(args.steps, 20)
    for epoch in range(args.steps):
        if epoch == args.steps - timed:
            if dev.type == "cuda":
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        logits = model(src, dst, rel, norm)
        loss = F.cross_entropy(logits.index_select(0, train), y.index_select(0, train))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if epoch % 25 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if dev.type == "cuda":
        torch.cuda.synchronize()
    dt = time.perf_counter() - t0
    print(f"final loss {loss.item():.5f}")
    print(f"MEAN_STEP_MS {dt / timed * 1e3:.3f}")


if __name__ == "__main__":
    main()
