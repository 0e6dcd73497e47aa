"""Fits alloy phase properties with a Kolmogorov-Arnold network: every edge carries a cubic B-spline on a
learnable grid, evaluated by the Cox-de Boor recursion, beside a SiLU base path."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from common import Clock, arguments
from torch import nn

WALLS = [["bandwidth", "unfused-pointwise"]]
FIXES = {
    "compiled": "the spline basis is compiled",
    "fused-adam": "AdamW in one fused kernel",
}
TRUTH_STEPS = 220


def spline_bases(x, grid, order):
    """Values of all B-spline bases: [rows, inputs] -> [rows, inputs, intervals + order]."""
    x = x.unsqueeze(-1)
    bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
    for k in range(1, order + 1):
        left = (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)])
        right = (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:-k])
        bases = left * bases[:, :, :-1] + right * bases[:, :, 1:]
    return bases


class SplineLayer(nn.Module):
    def __init__(self, inputs, outputs, intervals, order, basis):
        super().__init__()
        self.order, self.basis = order, basis
        spacing = 2 / intervals
        knots = torch.arange(-order, intervals + order + 1) * spacing - 1
        self.register_buffer("grid", knots.expand(inputs, -1).contiguous())
        self.base = nn.Linear(inputs, outputs)
        self.spline = nn.Linear(inputs * (intervals + order), outputs, bias=False)

    def forward(self, x):
        bases = self.basis(x, self.grid, self.order)
        return self.base(F.silu(x)) + self.spline(bases.flatten(1))


class AlloyNet(nn.Module):
    def __init__(self, features, width, targets, basis):
        super().__init__()
        sizes = [features, width, width, targets]
        self.layers = nn.ModuleList(SplineLayer(a, b, 8, 3, basis) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.LayerNorm(a) for a in sizes[:-1])

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = layer(torch.tanh(norm(x)))
        return x


def main():
    args = arguments(TRUTH_STEPS, FIXES)
    torch.manual_seed(7)
    rows, features, width = (8192, 128, 256) if args.gpu else (64, 8, 16)
    torch.set_float32_matmul_precision("high")
    basis = torch.compile(spline_bases, dynamic=False) if args.fix == "compiled" else spline_bases
    model = AlloyNet(features, width, 12, basis).to(args.device)
    fused = True if args.fix == "fused-adam" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=fused)

    compositions = torch.randn(rows * 8, features, device=args.device)
    measured = torch.randn(rows * 8, 12, device=args.device)

    clock = Clock(args.steps)
    for step in range(args.steps):
        first = (step % 8) * rows
        predicted = model(compositions[first : first + rows])
        loss = F.huber_loss(predicted, measured[first : first + rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.tick()
    clock.report()


if __name__ == "__main__":
    main()
