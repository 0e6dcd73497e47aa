"""Intrusion detection on flow statistics, hardened by projected gradient attacks on the standardised features."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def flows(count, features, classes, seed=13):
    """Skewed, correlated statistics; attack families move some of them a little."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=g)
    mix = torch.randn(features, 48, generator=g) / 7
    shift = torch.randn(classes, features, generator=g) * (torch.rand(classes, features, generator=g) < 0.15)
    x = torch.randn(count, 48, generator=g) @ mix.t() + 0.5 * torch.randn(count, features, generator=g) + 0.8 * shift[y]
    x[:, ::4] = x[:, ::4].exp()
    return (x - x.mean(0)) / x.std(0), y


class Detector(nn.Module):
    def __init__(self, features, widths, classes):
        super().__init__()
        sizes = [features, *widths]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(b) for b in widths)
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = F.gelu(norm(layer(x)))
        return self.head(x)


class PGD:
    """L-infinity attack with random start; features that a sender cannot choose stay as they are."""

    def __init__(self, model, fixed, eps=0.25, alpha=0.06, rounds=7, fix=""):
        self.model, self.free, self.eps, self.alpha, self.rounds, self.fix = model, ~fixed, eps, alpha, rounds, fix

    def gradient(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        if self.fix == "input_only":
            return torch.autograd.grad(loss, x)[0]
        loss.backward()
        return x.grad

    def __call__(self, x, y):
        delta = torch.empty_like(x).uniform_(-self.eps, self.eps) * self.free
        for _ in range(self.rounds):
            adv = (x + delta).requires_grad_(True)
            step = self.alpha * self.gradient(adv, y).sign() * self.free
            delta = (delta + step).clamp_(-self.eps, self.eps)
        return x + delta


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--fix", default="", help="input_only, frozen")
    ap.add_argument("--device", default="cpu")
    args = ap.parse_args()
    gpu = args.device == "cuda"
    count, features, widths, batch, rounds = (
        (400_000, 2048, (8192, 8192, 4096), 1024, 10) if gpu else (20_000, 480, (1536, 1536, 768), 64, 7))
    torch.manual_seed(0)
    x, y = (v.to(args.device) for v in flows(count, features, 12))
    model = Detector(features, widths, 12).to(args.device)
    attack = PGD(model, torch.rand(features, device=args.device) < 0.3, rounds=rounds, fix=args.fix)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    losses = []
    for step in range(args.steps):
        if step == args.steps // 3:
            torch.cuda.synchronize() if gpu else None
            t0 = time.perf_counter()
        rows = torch.randint(count, (batch,), device=args.device)
        if args.fix == "frozen":
            model.requires_grad_(False)
            attacked = attack(x[rows], y[rows])
            model.requires_grad_(True)
        else:
            attacked = attack(x[rows], y[rows])
        opt.zero_grad()
        loss = F.cross_entropy(model(attacked), y[rows])
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    torch.cuda.synchronize() if gpu else None
    spent = time.perf_counter() - t0
    print(f"robust loss first {losses[0].item():.5f} last {torch.stack(losses[-20:]).mean().item():.5f}")
    print(f"mean step ms {spent * 1e3 / (args.steps - args.steps // 3):.3f}")


if __name__ == "__main__":
    main()
