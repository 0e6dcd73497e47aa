"""Graph-transformer surrogate for unsteady flow on an unstructured mesh."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_float32_matmul_precision("high")


class EdgeAttention(nn.Module):
    """Each node attends to its neighbours; src/dst index the edges."""

    def __init__(self, d, heads):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))
        self.o = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))
        self.heads = heads

    def edge_qkv(self, x, src, dst):
        xs, xd = x.index_select(0, src), x.index_select(0, dst)
        return self.q(xd), self.k(xs), self.v(xs)

    def forward(self, h, src, dst):
        n, d = h.shape
        x = self.norm(h)
        q, k, v = (t.view(-1, self.heads, d // self.heads) for t in self.edge_qkv(x, src, dst))
        s = (q * k).sum(-1) * (d // self.heads) ** -0.5
        s = s.clamp(-8, 8).exp()
        z = torch.zeros(n, self.heads, device=h.device).index_add(0, dst, s)
        msg = (v * s.unsqueeze(-1)).flatten(1)
        agg = torch.zeros_like(h).index_add(0, dst, msg)
        agg = (agg.view(n, self.heads, -1) / (z.unsqueeze(-1) + 1e-6)).view(n, d)
        h = h + self.o(agg)
        return h + self.ff(h)


class NodeProjected(EdgeAttention):
    def edge_qkv(self, x, src, dst):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return q.index_select(0, dst), k.index_select(0, src), v.index_select(0, src)


class FlowSurrogate(nn.Module):
    def __init__(self, d, heads, layers, kind):
        super().__init__()
        self.inp = nn.Linear(5, d)
        self.layers = nn.ModuleList(kind(d, heads) for _ in range(layers))
        self.out = nn.Linear(d, 3)

    def forward(self, pos, state, src, dst):
        h = self.inp(torch.cat([pos, state], -1))
        for layer in self.layers:
            h = layer(h, src, dst)
        return state + self.out(h)


def mesh(n, deg, device):
    """Points along a space-filling order; neighbours are near in that order."""
    t = torch.linspace(0, 1, n, device=device)
    pos = torch.stack([t + 0.02 * torch.rand_like(t), torch.rand_like(t)], -1)
    dst = torch.arange(n, device=device).repeat_interleave(deg)
    src = (dst + torch.randint(-200, 201, dst.shape, device=device)) % n
    return pos, src, dst


def flow(pos, t):
    u = torch.sin(6 * pos[:, 0] - t) * torch.cos(3 * pos[:, 1])
    v = torch.cos(4 * pos[:, 1] + t) * torch.sin(5 * pos[:, 0])
    return torch.stack([u, v, u * v], -1)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=40)
    cli.add_argument("--fix", default="")
    cli.add_argument("--tiny", action="store_true")
    cli.add_argument("--cpu", action="store_true")
    o = cli.parse_args()
    dev = torch.device("cpu" if o.cpu else "cuda")
    torch.manual_seed(2)
    n, deg, d, heads, layers = (60, 4, 16, 2, 2) if o.tiny else (24_000, 24, 256, 8, 4)
    kind = NodeProjected if "project_nodes" in o.fix.split(",") else EdgeAttention
    net = FlowSurrogate(d, heads, layers, kind).to(dev)
    opt = torch.optim.Adam(net.parameters(), 3e-4, fused=not o.cpu)
    pos, src, dst = mesh(n, deg, dev)
    tail = max(1, o.steps // 2)
    for it in range(o.steps):
        if it == o.steps - tail:
            if not o.cpu:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        now = 0.05 * (it % 200)
        noisy = flow(pos, now) + 0.01 * torch.randn(n, 3, device=dev)
        loss = F.mse_loss(net(pos, noisy, src, dst), flow(pos, now + 0.05))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if it % 100 == 0:
            print("it", it, "mse", f"{loss.item():.6f}")
    if not o.cpu:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / tail * 1e3:.3f}")
    print(f"final {loss.item():.6f}")
