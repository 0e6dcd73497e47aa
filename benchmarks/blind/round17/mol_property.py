"""Regression of a molecular property: GIN message passing over packed graphs, gated readout, ridge-like head."""
import argparse
import time

import torch
from torch import nn, optim
from torch.nn import functional as F


def make_molecule(gen, lo, hi, n_types):
    """A random tree plus a few ring closures; both directions of every bond."""
    n = int(torch.randint(lo, hi, (1,), generator=gen))
    parent = (torch.rand(n - 1, generator=gen) * torch.arange(1, n)).long()
    child = torch.arange(1, n)
    rings = torch.randint(0, n, (2, max(1, n // 8)), generator=gen)
    edges = torch.cat([torch.stack([parent, child]), rings], 1)
    edges = torch.cat([edges, edges.flip(0)], 1)
    atoms = torch.randint(0, n_types, (n,), generator=gen)
    target = (atoms < 3).float().mean() + 0.05 * rings.shape[1]
    return atoms, edges, target


def pack(mols):
    sizes = torch.tensor([len(a) for a, _, _ in mols])
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    atoms = torch.cat([m[0] for m in mols])
    edges = torch.cat([m[1] + p for m, p in zip(mols, ptr.tolist())], 1)
    target = torch.stack([m[2] for m in mols])
    graph = torch.repeat_interleave(torch.arange(len(mols)), sizes)
    return atoms, edges, graph, ptr.tolist(), target


class GINLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edges):
        agg = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
        return h + F.relu(self.norm(self.mlp((1 + self.eps) * h + agg)))


class GatedReadout(nn.Module):
    """Weights of the atoms by a softmax within their molecule."""

    def __init__(self, dim):
        super().__init__()
        self.gate, self.value = nn.Linear(dim, 1), nn.Linear(dim, dim)

    def forward(self, h, graph, ptr):
        pooled = []
        for a, b in zip(ptr[:-1], ptr[1:]):
            x = h[a:b]
            w = torch.softmax(self.gate(x), dim=0)
            pooled.append((w * torch.tanh(self.value(x))).sum(0))
        return torch.stack(pooled)


class SegmentReadout(GatedReadout):
    def forward(self, h, graph, ptr):
        n = len(ptr) - 1
        g = self.gate(h).squeeze(1)
        top = torch.full((n,), float("-inf"), device=h.device).scatter_reduce(0, graph, g.detach(), "amax")
        e = torch.exp(g - top[graph])
        w = e / torch.zeros(n, device=h.device).index_add(0, graph, e)[graph]
        return torch.zeros(n, h.shape[1], device=h.device).index_add(0, graph, w[:, None] * torch.tanh(self.value(h)))


class HoistedReadout(GatedReadout):
    """Both linear maps on all atoms at once; only the weights and sums go molecule by molecule."""

    def forward(self, h, graph, ptr):
        sizes = [b - a for a, b in zip(ptr[:-1], ptr[1:])]
        gates, values = self.gate(h).split(sizes), torch.tanh(self.value(h)).split(sizes)
        return torch.stack([(torch.softmax(g, 0) * v).sum(0) for g, v in zip(gates, values)])


READOUTS = {"": GatedReadout, "segment": SegmentReadout, "hoist": HoistedReadout}


class PropertyNet(nn.Module):
    def __init__(self, n_types, dim, depth, readout):
        super().__init__()
        self.atom = nn.Embedding(n_types, dim)
        self.layers = nn.ModuleList(GINLayer(dim) for _ in range(depth))
        self.readout = readout(dim)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, atoms, edges, graph, ptr):
        h = self.atom(atoms)
        for layer in self.layers:
            h = layer(h, edges)
        return self.head(self.readout(h, graph, ptr)).squeeze(1)


def run(cfg):
    big = cfg.device.startswith("cuda")
    per_batch, n_batches, dim, depth = (2048, 12, 512, 5) if big else (192, 24, 96, 2)
    gen = torch.Generator().manual_seed(2)
    packs = []
    for _ in range(n_batches):
        *tensors, ptr, y = pack([make_molecule(gen, 12, 30, 16) for _ in range(per_batch)])
        packs.append((*[t.to(cfg.device) for t in tensors], ptr, y.to(cfg.device)))

    torch.manual_seed(2)
    net = PropertyNet(16, dim, depth, READOUTS[cfg.fix]).to(cfg.device)
    adam = optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    total, started = torch.zeros((), device=cfg.device), 0.0
    for it in range(cfg.steps):
        if it == cfg.steps // 3:
            if big:
                torch.cuda.synchronize()
            started = time.perf_counter()
        *inputs, y = packs[it % n_batches]
        loss = F.mse_loss(net(*inputs), y)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        total += loss.detach()
        if it % n_batches == n_batches - 1:
            print(f"epoch {it // n_batches} mse {total.item() / n_batches:.5f}", flush=True)
            total.zero_()
    if big:
        torch.cuda.synchronize()
    print(f"last mse {loss.item():.6f}")
    print(f"mean step ms {(time.perf_counter() - started) * 1e3 / (cfg.steps - cfg.steps // 3):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fix", default="", choices=sorted(READOUTS))
    run(parser.parse_args())
