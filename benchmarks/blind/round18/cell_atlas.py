"""Linearly decoded autoencoder for a single-cell atlas. The expression matrix has genes as rows and cells as columns,
as the quantification pipeline and the public archives write it."""
import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F


def simulate_counts(genes, cells, types, seed=0):
    """Poisson counts of cells of a few types with different depth: [genes, cells]."""
    g = torch.Generator().manual_seed(seed)
    profile = torch.softmax(1.5 * torch.randn(genes, types, generator=g), dim=0)
    kind = torch.randint(types, (cells,), generator=g)
    depth = torch.empty(cells).log_normal_(6.5, 0.4, generator=g)
    counts = torch.empty(genes, cells)
    for part in torch.arange(cells).split(4096):
        counts[:, part] = torch.poisson(profile[:, kind[part]] * depth[part], generator=g)
    return counts, kind


class Atlas:
    def __init__(self, counts, device, fix):
        self.fix = fix
        self.cells = counts.shape[1]
        self.library = counts.sum(0).to(device)
        self.counts = (counts.t().contiguous() if fix == "cells_first" else counts).to(device)

    def fetch(self, cells):
        """Counts [batch, genes] and library sizes of some cells."""
        if self.fix == "cells_first":
            batch = self.counts[cells]
        elif self.fix == "index_select":
            batch = self.counts.index_select(1, cells).t()
        else:
            batch = self.counts[:, cells].t()
        return batch, self.library[cells]


class LinearDecoded(nn.Module):
    def __init__(self, genes, hidden, latent):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(genes, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.mean, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.loadings = nn.Linear(latent, genes)

    def forward(self, counts, library):
        h = self.encoder(counts / library[:, None] * 1e3)
        mu, logvar = self.mean(h), self.logvar(h).clamp(-8, 4)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        log_rate = F.log_softmax(self.loadings(z), dim=1)
        nll = -(counts * log_rate).sum(1) / library
        kl = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(1)
        return nll.mean(), kl.mean()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--fix", default="", help="cells_first, index_select")
    p.add_argument("--device", default="cpu")
    opt = p.parse_args()
    cuda = opt.device == "cuda"
    genes, cells, hidden, latent, batch = (4000, 400_000, 256, 32, 16_384) if cuda else (1200, 80_000, 32, 10, 1024)

    torch.manual_seed(3)
    counts, _ = simulate_counts(genes, cells, 14)
    atlas = Atlas(counts, opt.device, opt.fix)
    del counts
    model = LinearDecoded(genes, hidden, latent).to(opt.device)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    order, at, history = torch.randperm(atlas.cells, device=opt.device), 0, []
    for step in range(opt.steps):
        if step == opt.steps // 3:
            if cuda:
                torch.cuda.synchronize()
            began = time.perf_counter()
        if at + batch > atlas.cells:
            order, at = torch.randperm(atlas.cells, device=opt.device), 0
        x, library = atlas.fetch(order[at:at + batch])
        at += batch
        nll, kl = model(x, library)
        loss = nll + min(1.0, step / 400) * 0.01 * kl
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        history.append(loss.detach())
    if cuda:
        torch.cuda.synchronize()
    spent = time.perf_counter() - began
    print(f"loss {history[0].item():.5f} -> {torch.stack(history[-10:]).mean().item():.5f}")
    print(f"mean step ms {1e3 * spent / (opt.steps - opt.steps // 3):.3f}")


if __name__ == "__main__":
    main()
