"""Kolmogorov-Arnold network (B-spline edges) for a regression on a wide table."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class KANLayer(nn.Module):
    def __init__(self, d_in, d_out, grid=8, order=3, lo=-2.0, hi=2.0, basis="bspline"):
        super().__init__()
        self.order, self.kind = order, basis
        step = (hi - lo) / grid
        self.register_buffer("knots", torch.arange(-order, grid + order + 1) * step + lo)
        self.register_buffer("centres", torch.linspace(lo, hi, grid + order))
        self.base = nn.Linear(d_in, d_out)
        self.spline = nn.Linear(d_in * (grid + order), d_out, bias=False)
        nn.init.normal_(self.spline.weight, std=0.02)

    def bases(self, x):
        x = x.unsqueeze(-1)
        if self.kind == "rbf":
            return torch.exp(-((x - self.centres) * 2.0) ** 2)
        g = self.knots
        b = ((x >= g[:-1]) & (x < g[1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (x - g[: -(k + 1)]) / (g[k:-1] - g[: -(k + 1)]) * b[..., :-1]
            right = (g[k + 1:] - x) / (g[k + 1:] - g[1:-k]) * b[..., 1:]
            b = left + right
        return b

    def forward(self, x):
        return self.base(F.silu(x)) + self.spline(self.bases(x).flatten(1))


class KAN(nn.Module):
    def __init__(self, dims, basis):
        super().__init__()
        self.layers = nn.ModuleList(KANLayer(a, b, basis=basis) for a, b in zip(dims[:-1], dims[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(a, elementwise_affine=False) for a in dims[:-1])

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers):
            x = layer(norm(x))
        return x.squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="compile, rbf")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--cpu", action="store_true")
    args = ap.parse_args()
    fix = set(filter(None, args.fix.split(",")))
    cuda = not args.cpu
    dev = torch.device("cuda" if cuda else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    rows, dims, bs = (256, [8, 8, 1], 32) if args.tiny else (2_000_000, [96, 128, 128, 64, 1], 32768)
    table = torch.randn(rows, dims[0], device=dev)
    target = torch.sin(table[:, 0] * 2) + table[:, 1] * table[:, 2] + 0.1 * torch.randn(rows, device=dev)
    net = KAN(dims, "rbf" if "rbf" in fix else "bspline").to(dev)
    if "compile" in fix:
        net.compile(backend="inductor" if cuda else "aot_eager")
    opt = torch.optim.AdamW(net.parameters(), 1e-3, fused=True)
    window = min(args.steps, max(3, args.steps // 3))
    order, at, running = torch.randperm(rows, device=dev), 0, torch.zeros((), device=dev)
    for step in range(args.steps):
        if step == args.steps - window:
            if cuda:
                torch.cuda.synchronize()
            t0 = time.perf_counter()
        if at + bs > rows:
            order, at = torch.randperm(rows, device=dev), 0
        idx = order[at:at + bs]
        at += bs
        loss = F.mse_loss(net(table[idx]), target[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} mse {running.item() / 50:.4f}")
            running.zero_()
    if cuda:
        torch.cuda.synchronize()
    print(f"MEAN_STEP_MS {(time.perf_counter() - t0) / window * 1e3:.3f}")


if __name__ == "__main__":
    main()
