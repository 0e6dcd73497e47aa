"""Groundwater levels between wells: exact Gaussian process, length scales fitted by the marginal likelihood.

In float64 throughout: with a nugget of 1e-4 the covariance of close wells is too near singular for float32.
"""
import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

FIXES = ()


def wells(count, gen):
    """Wells in clusters, as drilling goes; level from relief, a trend and a few depressions around pumps."""
    towns = torch.rand(25, 2, generator=gen, dtype=torch.double)
    place = towns[torch.randint(25, (count,), generator=gen)]
    place = place + 0.04 * torch.randn(count, 2, generator=gen, dtype=torch.double)
    depth = torch.rand(count, 1, generator=gen, dtype=torch.double)
    level = torch.sin(5 * place[:, 0]) + 0.8 * torch.cos(4 * place[:, 1]) + 0.3 * depth[:, 0]
    for x, y in towns[:4].tolist():
        level = level - 0.7 * torch.exp(-((place[:, 0] - x) ** 2 + (place[:, 1] - y) ** 2) / 0.005)
    level = level + 0.01 * torch.randn(count, generator=gen, dtype=torch.double)
    return torch.cat([place, depth], 1), (level - level.mean()) / level.std()


def factor(covariance, nugget):
    """Cholesky factor of covariance + nugget I; the covariance is overwritten on its diagonal only."""
    covariance.diagonal().add_(nugget)
    return torch.linalg.cholesky(covariance)


class MarginalLikelihood(torch.autograd.Function):
    """Negative log marginal likelihood for each well; its gradient is (K^-1 - a a') / 2 with a = K^-1 y."""

    @staticmethod
    def forward(ctx, covariance, nugget, y):
        lower = factor(covariance.clone(), nugget)
        weight = torch.cholesky_solve(y[:, None], lower)
        ctx.save_for_backward(lower, weight)
        half = 0.5 * y.dot(weight[:, 0]) + lower.diagonal().log().sum()
        return half / len(y) + 0.5 * math.log(2 * math.pi)

    @staticmethod
    def backward(ctx, grad):
        lower, weight = ctx.saved_tensors
        scale = 0.5 * grad.item() / len(weight)
        inverse = torch.cholesky_inverse(lower)
        full = torch.addmm(inverse, weight, weight.t(), beta=scale, alpha=-scale)
        return full, full.diagonal().sum(), None


class ExactGP(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((dims,), math.log(0.3), dtype=torch.double))
        self.log_signal = nn.Parameter(torch.zeros((), dtype=torch.double))
        self.log_nugget = nn.Parameter(torch.tensor(math.log(1e-2), dtype=torch.double))

    def covariance(self, a, b):
        """signal^2 exp(-|a - b|^2 / 2); the whole exponent is one product of coordinates with two more columns."""
        a, b = a / self.log_scale.exp(), b / self.log_scale.exp()
        side_a = (self.log_signal - 0.5 * a.square().sum(1))[:, None]
        side_b = (self.log_signal - 0.5 * b.square().sum(1))[:, None]
        left = torch.cat([a, side_a, torch.ones_like(side_a)], 1)
        right = torch.cat([b, torch.ones_like(side_b), side_b], 1)
        return torch.exp(left @ right.t())

    def nugget(self):
        return self.log_nugget.exp() + 1e-4

    def nll(self, x, y):
        return MarginalLikelihood.apply(self.covariance(x, x), self.nugget(), y)

    @torch.no_grad()
    def predict(self, x, y, new):
        lower = factor(self.covariance(x, x), self.nugget())
        weight = torch.cholesky_solve(y[:, None], lower)
        return (self.covariance(new, x) @ weight).squeeze(1)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--fix", choices=FIXES)
    ap.add_argument("--size", choices=("cpu", "small"), default="cpu")
    args = ap.parse_args()
    count, held = (1500, 200) if args.size == "cpu" else (120, 30)
    x, y = wells(count + held, torch.Generator().manual_seed(13))
    train_x, train_y, test_x, test_y = x[:count], y[:count], x[count:], y[count:]

    gp = ExactGP(x.shape[1])
    optimizer = torch.optim.Adam(gp.parameters(), lr=0.03, fused=True)
    took, losses = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        loss = gp.nll(train_x, train_y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        took.append(time.perf_counter() - start)
        if step % 20 == 0:
            scale = ", ".join(f"{s:.2f}" for s in gp.log_scale.exp().tolist())
            print(f"step {step} nll {losses[-1]:.4f} scales {scale}")
    late = took[args.steps // 3:]
    print(f"error at held-out wells {F.mse_loss(gp.predict(train_x, train_y, test_x), test_y).sqrt().item():.4f}")
    print(f"mean nll {sum(losses) / len(losses):.6f}")
    print(f"mean step ms {1e3 * sum(late) / len(late):.3f}")


if __name__ == "__main__":
    main()
