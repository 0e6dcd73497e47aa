"""Entity typing on a knowledge graph with a two-layer relational GCN (basis decomposition), full batch."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


def make_graph(n_ent, n_edge, n_rel, n_cls, gen):
    src = torch.randint(n_ent, (n_edge,), generator=gen)
    dst = (torch.rand(n_edge, generator=gen) ** 1.5 * n_ent).long().clamp_(max=n_ent - 1)
    freq = torch.rand(n_rel, generator=gen) + 0.3
    rel = torch.multinomial(freq, n_edge, replacement=True, generator=gen)
    label = torch.randint(n_cls, (n_ent,), generator=gen)
    train = torch.rand(n_ent, generator=gen) < 0.4
    return src, dst, rel, label, train


class RelConv(nn.Module):
    """h_i = W_0 x_i + sum_r sum_{j in N_r(i)} W_r x_j / |N_r(i)|,  W_r = sum_b a_rb V_b"""

    def __init__(self, d_in, d_out, n_rel, n_bases, variant):
        super().__init__()
        self.bases = nn.Parameter(torch.empty(n_bases, d_in, d_out))
        self.comp = nn.Parameter(torch.empty(n_rel, n_bases))
        self.root = nn.Linear(d_in, d_out)
        nn.init.xavier_uniform_(self.bases)
        nn.init.xavier_uniform_(self.comp)
        self.variant = variant

    def messages(self, x, g):
        weight = torch.einsum("rb,bio->rio", self.comp, self.bases)
        if "transform_nodes" in self.variant:
            every = torch.einsum("ni,rio->rno", x, weight).flatten(0, 1)
            return every.index_select(0, g["rel"] * x.size(0) + g["src"])
        x_j = x.index_select(0, g["src"])
        if "per_relation" in self.variant:
            # edges are ordered by relation
            return torch.cat([part @ weight[r] for r, part in enumerate(x_j.split(g["counts"]))])
        w_e = weight.index_select(0, g["rel"])
        return torch.bmm(x_j.unsqueeze(1), w_e).squeeze(1)

    def forward(self, x, g):
        m = self.messages(x, g) * g["norm"][:, None]
        out = self.root(x)
        return out.index_add(0, g["dst"], m)


class RGCN(nn.Module):
    def __init__(self, n_ent, d, n_rel, n_bases, n_cls, variant):
        super().__init__()
        self.ent = nn.Parameter(torch.randn(n_ent, d) * 0.1)
        self.conv1 = RelConv(d, d, n_rel, n_bases, variant)
        self.conv2 = RelConv(d, d, n_rel, n_bases, variant)
        self.cls = nn.Linear(d, n_cls)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, g):
        h = self.n1(F.relu(self.conv1(self.ent, g)))
        h = self.n2(F.relu(self.conv2(h, g)))
        return self.cls(h)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--fix", default="")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--cpu", action="store_true")
    return p.parse_args()


def main():
    a = parse()
    variant = set(a.fix.split(","))
    dev = torch.device("cpu" if a.cpu else "cuda")
    n_ent, n_edge, n_rel, d, n_cls = (200, 900, 6, 16, 5) if a.tiny else (20000, 300000, 40, 64, 12)
    gen = torch.Generator().manual_seed(11)
    src, dst, rel, label, train = make_graph(n_ent, n_edge, n_rel, n_cls, gen)
    order = torch.argsort(rel, stable=True)
    src, dst, rel = src[order], dst[order], rel[order]
    key = rel * n_ent + dst
    deg = torch.bincount(key, minlength=n_rel * n_ent).float()
    g = {k: v.to(dev) for k, v in dict(src=src, dst=dst, rel=rel, norm=1.0 / deg[key]).items()}
    g["counts"] = torch.bincount(rel, minlength=n_rel).tolist()
    label, train_idx = label.to(dev), train.nonzero().squeeze(1).to(dev)

    torch.manual_seed(0)
    model = RGCN(n_ent, d, n_rel, 8, n_cls, variant).to(dev)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4, fused=dev.type == "cuda")

    def sync():
        if dev.type == "cuda":
            torch.cuda.synchronize()

    target = label[train_idx]
    first = a.steps // 2
    for epoch in range(a.steps):
        if epoch == first:
            sync()
            tic = time.perf_counter()
        opt.zero_grad()
        loss = F.cross_entropy(model(g)[train_idx], target)
        loss.backward()
        opt.step()
        if epoch % 50 == 0:
            print(f"epoch {epoch:4d} loss {loss.item():.5f}", flush=True)
    sync()
    toc = time.perf_counter()
    print(f"MEAN_STEP_MS {1000 * (toc - tic) / (a.steps - first):.3f}")
    with torch.no_grad():
        acc = (model(g).argmax(1) == label)[train_idx].float().mean()
    print(f"final loss {loss.item():.5f} train acc {acc.item():.4f}")


if __name__ == "__main__":
    main()
